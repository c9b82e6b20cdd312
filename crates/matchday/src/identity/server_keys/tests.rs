//! Tests of server keys.
