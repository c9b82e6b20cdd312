//! Tests of the server API.
