//! Reads stored columns of matches, for every feature that joins them.

use scoring::Side;

/// Reads the stored name of a team's side.
pub fn read_side(name: Option<&str>) -> sqlx::Result<Option<Side>> {
    name.map(|name| name.parse().map_err(|error: scoring::UnknownSide| sqlx::Error::Decode(error.into()))).transpose()
}
