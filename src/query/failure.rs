//! What a DataFusion error means to whoever sent the statement.

use std::error::Error as StdError;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;

use super::Error;

/// Sorts an error of planning or running.
pub fn classify(error: &DataFusionError) -> Error {
    let text = text(error);
    if is_store_failure(error) {
        return Error::Unavailable(text);
    }
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => Error::Limit(text),
        DataFusionError::Plan(_)
        | DataFusionError::SchemaError(..)
        | DataFusionError::SQL(..)
        | DataFusionError::NotImplemented(_)
        | DataFusionError::Configuration(_) => Error::Invalid(text),
        // Functions complain so about the values they get.
        DataFusionError::Execution(_) => Error::Values(text),
        DataFusionError::ArrowError(error, _) => match **error {
            ArrowError::DivideByZero
            | ArrowError::ArithmeticOverflow(_)
            | ArrowError::CastError(_)
            | ArrowError::ComputeError(_)
            | ArrowError::ParseError(_)
            | ArrowError::InvalidArgumentError(_) => Error::Values(text),
            ArrowError::NotYetImplemented(_) => Error::Invalid(text),
            ArrowError::MemoryError(_) => Error::Limit(text),
            _ => Error::Failed(text),
        },
        _ => Error::Failed(text),
    }
}

/// The error without the reader's backtrace.
pub fn text(error: &DataFusionError) -> String {
    error.strip_backtrace()
}

fn is_store_failure(error: &DataFusionError) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<object_store::Error>() || matches!(error.downcast_ref(), Some(DataFusionError::ObjectStore(_))) {
            return true;
        }
        // The reader of a file's footer leaves nothing of the store's error but its text.
        if let Some(DataFusionError::ParquetError(error)) = error.downcast_ref()
            && error.to_string().contains("Object Store error: ")
        {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests;
