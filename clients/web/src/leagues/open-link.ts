// An invite link is a path, `/join/K7MPQ2RS`, because fragments look odd in messages and some apps cut them off. The app
// itself keeps its path in the fragment, so the code moves there. It stays in the address until the fan has joined: it
// survives the login, the choice of a username and a reload.
const base = import.meta.env.BASE_URL;
const link = location.pathname.startsWith(base) && /^join\/([^/]+)\/?$/.exec(location.pathname.slice(base.length));
if (link) history.replaceState(null, "", `${base}#/join/${link[1]}`);
