//! Words for generated usernames, and reserved words.
//!
//! Words can appear in any combination, so each is chosen with every other in mind, in English, Spanish and Portuguese:
//! nothing about bodies, size, skin, sex, drugs or violence, no apes (an insult in stadiums), no brands, no clubs and
//! no words that imply a gender. The prefixes and suffixes for a user's text follow a stricter rule: no word that turns
//! the name of a group into a slogan, such as "power", "first" or "out".

/// Words of authority and the name of the service. They stay reserved next to digits and other reserved words:
/// `admin24` and `matchday_support` are as misleading as `admin`.
pub(super) const STRONG: &[&str] = &[
    "admin",
    "admins",
    "administrator",
    "administrators",
    "helpdesk",
    "matchday",
    "matchdays",
    "mod",
    "moderation",
    "moderator",
    "moderators",
    "mods",
    "official",
    "security",
    "staff",
    "superuser",
    "support",
    "sysadmin",
    "system",
    "webmaster",
];

/// Reserved on their own, also with separators or with digits in place of letters, but allowed with anything added:
/// `team7` and `the_owner` are ordinary names.
pub(super) const RESERVED: &[&str] = &[
    "about",
    "abuse",
    "account",
    "accounts",
    "all",
    "anonymous",
    "api",
    "auth",
    "billing",
    "bot",
    "bots",
    "channel",
    "contact",
    "deleted",
    "deleteduser",
    "docs",
    "everybody",
    "everyone",
    "false",
    "feedback",
    "guest",
    "health",
    "help",
    "here",
    "homeserver",
    "hostmaster",
    "info",
    "legal",
    "localhost",
    "login",
    "logout",
    "mail",
    "matrix",
    "me",
    "metrics",
    "nobody",
    "none",
    "noreply",
    "notice",
    "notices",
    "notification",
    "notifications",
    "null",
    "operator",
    "owner",
    "payment",
    "payments",
    "postmaster",
    "press",
    "privacy",
    "register",
    "robots",
    "room",
    "root",
    "server",
    "service",
    "services",
    "settings",
    "signin",
    "signup",
    "status",
    "synapse",
    "team",
    "terms",
    "true",
    "undefined",
    "unknown",
    "user",
    "username",
    "users",
    "www",
    "you",
];

/// Words that do not make a strong word less misleading: `the_real_admin`, `matchday_app`. Allowed alone.
pub(super) const DRESSING: &[&str] =
    &["app", "chat", "global", "hq", "iam", "im", "live", "my", "online", "our", "real", "the", "verified"];

/// Numbers associated with bad luck, sex, drugs, hate or death. Generated numbers never contain one.
pub(super) const NUMBERS_TO_AVOID: &[&str] = &["13", "14", "18", "69", "88", "420", "666", "911", "1312", "1488"];

/// Number of words at the start of [`PREFIXES`] and [`SUFFIXES`] that are suggested before the others.
pub(super) const NICEST: usize = 16;

/// Prefixes for a user's text; at most eight letters.
pub(super) const PREFIXES: &[&str] = &[
    "the", "golden", "real", "super", "captain", "lucky", "mighty", "vamos", "ole", "swift", "brave", "cosmic",
    "classic", "magic", "loyal", "agile", "amazing", "astral", "awesome", "bold", "bright", "bronze", "cheerful",
    "clever", "crimson", "daring", "dynamic", "electric", "emerald", "famous", "fearless", "friendly", "happy",
    "hattrick", "iconic", "joyful", "jubilant", "kickoff", "legend", "lively", "lunar", "mega", "merry", "nimble",
    "noble", "radiant", "rapid", "royal", "scarlet", "silver", "solar", "speedy", "splendid", "starry", "stellar",
    "sunny", "superb", "trusty", "turbo", "unbeaten", "valiant", "winning",
];

/// Suffixes for a user's text; at most eight letters.
pub(super) const SUFFIXES: &[&str] = &[
    "fc", "united", "eleven", "legend", "goals", "cf", "captain", "rovers", "hattrick", "champion", "sc", "golazo",
    "derby", "kickoff", "winger", "magic", "ace", "albion", "anthem", "arena", "assist", "banner", "city", "club",
    "comet", "condor", "crew", "dreamer", "dynamo", "eagle", "encore", "express", "falcon", "forward", "genius",
    "hero", "keeper", "libero", "lion", "maestro", "matchup", "medal", "ovation", "panther", "phoenix", "podium",
    "rondo", "scores", "skills", "spark", "spirit", "stadium", "striker", "talent", "terrace", "thunder", "tiger",
    "titan", "town", "trophy", "volley", "winner",
];

/// First half of a generated name; three to eight letters.
pub(super) const ADJECTIVES: &[&str] = &[
    "accurate", "adept", "aerial", "agile", "alpine", "amazing", "amber", "ardent", "artful", "astral", "autumn",
    "avid", "awesome", "azure", "beaming", "blissful", "bold", "brave", "breezy", "bright", "brisk", "bronze",
    "buoyant", "calm", "cheerful", "cheery", "classic", "clever", "cobalt", "copper", "coral", "cosmic", "creative",
    "crimson", "curious", "daring", "dashing", "dazzling", "dynamic", "earnest", "elated", "electric", "elegant",
    "emerald", "fabled", "fabulous", "faithful", "famous", "fearless", "festive", "fiery", "flawless", "fleet",
    "flowing", "fluent", "focused", "friendly", "gallant", "generous", "genial", "gentle", "glad", "gleaming",
    "glorious", "glowing", "golden", "graceful", "gracious", "grateful", "happy", "honest", "hopeful", "humble",
    "iconic", "indigo", "inspired", "jade", "jolly", "jovial", "joyful", "jubilant", "keen", "kind", "kinetic",
    "leaping", "lively", "loyal", "lucky", "luminous", "lunar", "lyrical", "magic", "magical", "magnetic", "majestic",
    "mellow", "merry", "midnight", "mighty", "modest", "morning", "musical", "mystic", "mythic", "nimble", "noble",
    "opal", "orbital", "patient", "peaceful", "perfect", "plucky", "poetic", "polar", "polished", "precise", "quick",
    "radiant", "rapid", "rare", "regal", "resolute", "rising", "roaring", "royal", "ruby", "sapphire", "scarlet",
    "serene", "shining", "silver", "sincere", "skilful", "smart", "smiling", "soaring", "solar", "speedy", "spirited",
    "splendid", "starry", "steady", "stellar", "stylish", "sublime", "summer", "sunlit", "sunny", "super", "superb",
    "swift", "thrilled", "tireless", "topaz", "tranquil", "trusty", "tuneful", "turbo", "unbeaten", "unique", "upbeat",
    "valiant", "vibrant", "violet", "vital", "vivid", "winning", "winter", "wise", "witty", "wondrous", "worthy",
    "zippy",
];

/// Second half of a generated name; three to eight letters.
pub(super) const NOUNS: &[&str] = &[
    "ace", "acrobat", "anchor", "antelope", "anthem", "applause", "arena", "armband", "artist", "assist", "aurora",
    "backheel", "badge", "banner", "beacon", "bench", "bison", "boot", "captain", "carnival", "champion", "chant",
    "cheer", "chorus", "comeback", "comet", "compass", "composer", "condor", "corner", "counter", "crane", "crest",
    "crossbar", "curler", "defender", "derby", "dolphin", "dragon", "dreamer", "drumbeat", "drummer", "dugout",
    "eagle", "encore", "engineer", "explorer", "falcon", "fanfare", "final", "finch", "firefly", "fixture", "forward",
    "fullback", "fulltime", "genius", "giant", "giraffe", "glove", "goal", "goalie", "goalpost", "golazo", "griffin",
    "halfback", "halftime", "hattrick", "hawk", "header", "hero", "heron", "horizon", "hornet", "inventor", "jersey",
    "juggler", "keeper", "kestrel", "kickoff", "koala", "lantern", "lark", "legend", "leopard", "libero", "lion",
    "lob", "macaw", "maple", "marlin", "matchup", "meadow", "medal", "melody", "meteor", "momentum", "nomad", "nutmeg",
    "oasis", "ocelot", "optimist", "osprey", "otter", "ovation", "owl", "panda", "panther", "parade", "pelican",
    "penguin", "pennant", "phoenix", "pilot", "pioneer", "pitch", "pivot", "planet", "playoff", "podium", "poet",
    "prodigy", "puffin", "pundit", "rainbow", "raven", "rhythm", "rocket", "rondo", "rookie", "runner", "sailor",
    "scarf", "scout", "seagull", "season", "singer", "skipper", "spark", "sparrow", "sprinter", "stadium", "starling",
    "stepover", "striker", "summit", "sunrise", "swan", "sweeper", "talent", "tempo", "terrace", "thunder", "ticket",
    "tiger", "titan", "toucan", "traveler", "trophy", "turf", "turtle", "unicorn", "veteran", "virtuoso", "volley",
    "voyager", "vuvuzela", "wave", "weekend", "whistle", "wingback", "winger", "wolf", "zebra",
];
