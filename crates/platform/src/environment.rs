//! The environment that a process runs in.

/// Kind of deployment. An unknown name means `production`, so a typo cannot relax a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    /// A developer's machine.
    Local,
    /// Automated tests.
    Testing,
    /// A deployment for rehearsing production.
    Staging,
    Production,
}

impl Environment {
    /// Parses the value of `MATCHDAY_ENV`.
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

    /// Factor by which limits for unauthenticated callers are relaxed. In development, a developer and a test with a
    /// hundred users share one address.
    pub fn leniency(self) -> u32 {
        if self.is_development() { 1_000 } else { 1 }
    }

    /// Whether development helpers are available.
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
