//! The kind of deployment that a process belongs to.

/// Where a process runs. What is not one of the names is `production`: a misspelt name must not loosen anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    /// A developer's machine.
    Local,
    /// Automated tests.
    Testing,
    /// A rehearsal of production.
    Staging,
    /// The real thing.
    Production,
}

impl Environment {
    /// Reads `MATCHDAY_ENV`.
    pub fn from_name(name: Option<&str>) -> Self {
        match name {
            Some("local") => Self::Local,
            Some("testing") => Self::Testing,
            Some("staging") => Self::Staging,
            _ => Self::Production,
        }
    }

    /// The name that `from_name` reads.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Testing => "testing",
            Self::Staging => "staging",
            Self::Production => "production",
        }
    }

    /// How many times as much strangers may cause here: a developer, and a test that makes a hundred users, sit behind
    /// one address.
    pub fn leniency(self) -> u32 {
        if self.is_development() { 1_000 } else { 1 }
    }

    /// Whether conveniences for developers may exist here.
    pub fn is_development(self) -> bool {
        matches!(self, Self::Local | Self::Testing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_environment_is_production() {
        for (name, expected) in [
            (None, Environment::Production),
            (Some("Local"), Environment::Production),
            (Some(""), Environment::Production),
            (Some("local"), Environment::Local),
            (Some("testing"), Environment::Testing),
            (Some("staging"), Environment::Staging),
        ] {
            assert_eq!(Environment::from_name(name), expected, "{name:?}");
        }
    }
}
