//! Asks the lake's store at the start whether it can be committed to, beside everything else, and says what it answers. The lake
//! itself holds back every commit until it has the proof (`lake::proof`); this is for people, who should not have to wait for the
//! first flush to hear of a wrong setting.

use std::sync::Arc;
use std::time::Duration;

use crate::lake::{Kind, Lake};

const FIRST_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Asks until the store is proven fit.
pub async fn prove(lake: Arc<Lake>) {
    let (mut pause, mut said) = (FIRST_PAUSE, None);
    while let Err(error) = lake.probe().await {
        let text = error.to_string();
        if said.as_ref() != Some(&text) {
            // The rows are safe in the log either way; only one of the two ends without anybody's doing.
            match error.kind() {
                Kind::Unavailable => {
                    tracing::warn!(lake = %lake.url(), error = text, "the lake does not answer; asking again")
                }
                _ => {
                    tracing::error!(lake = %lake.url(), error = text, "nothing is flushed; `penstock doctor` examines the store")
                }
            }
            said = Some(text);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}
