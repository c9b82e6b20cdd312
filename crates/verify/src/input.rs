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

/// Parses a JSON text. A text that repeats a field is refused, because readers disagree on which one counts.
pub(crate) fn parse(text: &str, file: &str) -> Result<Value, InputError> {
    let value = serde_json::from_str(text).map_err(|error| InputError::Json { file: file.to_owned(), error })?;
    if fields_in(text) != fields_of(&value) {
        let error = Malformed("a field is repeated".to_owned());
        return Err(InputError::Malformed { file: file.to_owned(), error });
    }
    Ok(value)
}

/// Number of fields in a valid JSON text: its colons outside strings.
fn fields_in(text: &str) -> usize {
    let (mut fields, mut in_string, mut is_escaped) = (0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => in_string = !in_string,
            b':' if !in_string => fields += 1,
            _ => {}
        }
    }
    fields
}

/// Number of different fields of a value and of all values in it.
fn fields_of(value: &Value) -> usize {
    match value {
        Value::Object(object) => object.len() + object.values().map(fields_of).sum::<usize>(),
        Value::Array(values) => values.iter().map(fields_of).sum(),
        _ => 0,
    }
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
    let file = path.display().to_string();
    let mut text = String::new();
    open(path)?.read_to_string(&mut text).map_err(|error| InputError::File { file: file.clone(), error })?;
    Ok(match parse(&text, &file)? {
        Value::Object(mut object) if object.contains_key("data") => object.remove("data").unwrap_or_default(),
        other => other,
    })
}
