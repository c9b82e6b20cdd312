//! Checks a file of messages against the English one.

use std::collections::{BTreeMap, BTreeSet};

use fluent_syntax::{
    ast::{Entry, Expression, InlineExpression, Pattern, PatternElement},
    parser::{self, ParserError},
};

use super::CatalogueError;

/// Function that messages can use, besides arguments.
const FUNCTION: &str = "NUMBER";

/// Ids of the messages of a file, each with its arguments.
#[derive(Debug)]
pub(crate) struct Messages {
    file: String,
    pub(crate) arguments: BTreeMap<String, BTreeSet<String>>,
}

impl Messages {
    /// Parses a file.
    pub(crate) fn read(file: &str, source: &str) -> Result<Self, CatalogueError> {
        let resource = parser::parse(source).map_err(|(_, errors)| syntax(file, source, errors.first()))?;
        let mut arguments = BTreeMap::new();
        for entry in resource.body {
            let (id, value) = match entry {
                Entry::Message(message) => (message.id.name, message.value),
                Entry::Term(term) => (term.id.name, Some(term.value)),
                Entry::Comment(_) | Entry::GroupComment(_) | Entry::ResourceComment(_) | Entry::Junk { .. } => continue,
            };
            let (file, id) = (file.to_owned(), id.to_owned());
            let Some(value) = value else { return Err(CatalogueError::NoText { file, id }) };
            let mut used = Used::default();
            used.pattern(&value);
            if let Some(reference) = used.references.pop() {
                return Err(CatalogueError::Reference { file, id, reference });
            }
            if arguments.insert(id.clone(), used.arguments).is_some() {
                return Err(CatalogueError::Repeated { file, id });
            }
        }
        Ok(Self { file: file.to_owned(), arguments })
    }

    /// Checks that English has each message, with at least these arguments.
    pub(crate) fn check(&self, english: &Self) -> Result<(), CatalogueError> {
        for (id, arguments) in &self.arguments {
            let (file, id) = (self.file.clone(), id.clone());
            let Some(known) = english.arguments.get(&id) else { return Err(CatalogueError::UnknownId { file, id }) };
            if let Some(argument) = arguments.difference(known).next() {
                return Err(CatalogueError::UnknownArgument { file, id, argument: argument.clone() });
            }
        }
        Ok(())
    }
}

fn syntax(file: &str, source: &str, error: Option<&ParserError>) -> CatalogueError {
    let at = error.map_or(0, |error| error.pos.start).min(source.len());
    let line = source.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
    let fault = error.map_or_else(|| "not a Fluent file".to_owned(), |error| error.kind.to_string());
    CatalogueError::Syntax { file: file.to_owned(), line, fault: fault.replace('\n', " ") }
}

/// Arguments that a message uses, and other references.
#[derive(Default)]
struct Used {
    arguments: BTreeSet<String>,
    references: Vec<String>,
}

impl Used {
    fn pattern(&mut self, pattern: &Pattern<&str>) {
        for element in &pattern.elements {
            if let PatternElement::Placeable { expression } = element {
                self.expression(expression);
            }
        }
    }

    fn expression(&mut self, expression: &Expression<&str>) {
        match expression {
            Expression::Inline(inline) => self.inline(inline),
            Expression::Select { selector, variants } => {
                self.inline(selector);
                for variant in variants {
                    self.pattern(&variant.value);
                }
            }
        }
    }

    fn inline(&mut self, inline: &InlineExpression<&str>) {
        match inline {
            InlineExpression::StringLiteral { .. } | InlineExpression::NumberLiteral { .. } => {}
            InlineExpression::VariableReference { id } => {
                self.arguments.insert(id.name.to_owned());
            }
            InlineExpression::Placeable { expression } => self.expression(expression),
            InlineExpression::FunctionReference { id, arguments } => {
                if id.name != FUNCTION {
                    self.references.push(id.name.to_owned());
                }
                for argument in &arguments.positional {
                    self.inline(argument);
                }
                for argument in &arguments.named {
                    self.inline(&argument.value);
                }
            }
            InlineExpression::MessageReference { id, .. } => self.references.push(id.name.to_owned()),
            InlineExpression::TermReference { id, .. } => self.references.push(format!("-{}", id.name)),
        }
    }
}
