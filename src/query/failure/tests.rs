use std::sync::Arc;

use super::*;

fn arrow(error: ArrowError) -> DataFusionError {
    DataFusionError::ArrowError(Box::new(error), None)
}

fn parquet(text: &str) -> DataFusionError {
    DataFusionError::ParquetError(Box::new(datafusion::parquet::errors::ParquetError::General(text.to_owned())))
}

#[test]
fn mistakes_limits_outages_and_defects_are_told_apart() {
    let store = || object_store::Error::Generic { store: "s3", source: "connection reset".into() };
    let context = |error| DataFusionError::Context("somewhere".to_owned(), Box::new(error));
    let shared = |error| DataFusionError::Shared(Arc::new(error));
    for (error, wanted) in [
        (DataFusionError::Plan("no such column".to_owned()), "invalid"),
        (context(DataFusionError::NotImplemented("that".to_owned())), "invalid"),
        (context(arrow(ArrowError::DivideByZero)), "values"),
        (shared(arrow(ArrowError::CastError("'x' to Int64".to_owned()))), "values"),
        (arrow(ArrowError::ExternalError(Box::new(arrow(ArrowError::DivideByZero)))), "values"),
        (DataFusionError::Execution("bad granularity".to_owned()), "values"),
        (context(DataFusionError::ResourcesExhausted("1 GiB".to_owned())), "limit"),
        (DataFusionError::ObjectStore(Box::new(store())), "unavailable"),
        (DataFusionError::External(Box::new(store())), "unavailable"),
        (parquet(&format!("Failed to fetch metadata for file x: Object Store error: {}", store())), "unavailable"),
        (parquet("Invalid Parquet file. Corrupt footer"), "failed"),
        (context(arrow(ArrowError::ExternalError(Box::new(store())))), "unavailable"),
        (DataFusionError::Internal("oh".to_owned()), "failed"),
        (arrow(ArrowError::IpcError("damaged".to_owned())), "failed"),
        (DataFusionError::External("anything".into()), "failed"),
    ] {
        let found = match classify(&error) {
            Error::Invalid(_) => "invalid",
            Error::Values(_) => "values",
            Error::Limit(_) => "limit",
            Error::Unavailable(_) => "unavailable",
            Error::Failed(_) => "failed",
            Error::Busy(_) | Error::Lake { .. } => "other",
        };
        assert_eq!(found, wanted, "{error:?}");
    }
}
