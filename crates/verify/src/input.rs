//! Reading of files: plain or compressed, or standard input.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;
use serde_json::Value;

use crate::fields::Malformed;

/// The input could not be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("{file} cannot be read: {error}")]
    File { file: String, error: io::Error },
    #[error("{file} is not JSON: {error}")]
    Json { file: String, error: serde_json::Error },
    #[error("{file}: {error}")]
    Malformed { file: String, error: Malformed },
}

/// Opens a file; `-` is standard input. A file whose name ends in `.gz` is decompressed.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>, InputError> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).map_err(|error| InputError::File { file: path.display().to_string(), error })?;
    Ok(if path.extension().is_some_and(|extension| extension == "gz") {
        Box::new(BufReader::new(MultiGzDecoder::new(file)))
    } else {
        Box::new(BufReader::new(file))
    })
}

/// Reads a JSON value: the bare value, or the `data` of a whole API response.
pub fn read_value(path: &Path) -> Result<Value, InputError> {
    let file = || path.display().to_string();
    let mut text = String::new();
    open(path)?.read_to_string(&mut text).map_err(|error| InputError::File { file: file(), error })?;
    let value: Value = serde_json::from_str(&text).map_err(|error| InputError::Json { file: file(), error })?;
    Ok(match value {
        Value::Object(mut object) if object.contains_key("data") => object.remove("data").unwrap_or_default(),
        other => other,
    })
}
