//! Changes of objects: based on the object that was read, repeated after a conflict, never of another object with the same
//! name.

use anyhow::bail;
use serde_json::Value;

use super::failure::{CONFLICT, NOT_FOUND};
use super::writing::{Write, Writer, merged};
use crate::people::workload_object::text_at;

/// Maximum number of attempts to write an object that other writers change too.
const ATTEMPTS: usize = 3;

/// Patches an object. `decide` returns the patch for the object as it is; after a conflict the object is read again, and the
/// patch is sent again if it is still the same object and the decision still holds. Returns the object after the write.
pub(crate) async fn patch(
    writer: &Writer<'_>,
    path: &str,
    read: Value,
    decide: impl Fn(&Value) -> Result<Value, String>,
) -> anyhow::Result<Value> {
    let uid = text_at(&read, "/metadata/uid").unwrap_or_default().to_owned();
    let name = text_at(&read, "/metadata/name").unwrap_or_default().to_owned();
    let mut now = read;
    for attempt in 1.. {
        let patch = decide(&now).map_err(anyhow::Error::msg)?;
        let shown = merged(&now, &patch);
        match writer.send(path, Write::Patch { read: &now, patch }).await {
            Ok(stored) => return Ok(stored.unwrap_or(shown)),
            Err(error) if error.code() == Some(CONFLICT) && attempt < ATTEMPTS => {}
            Err(error) => return Err(error.into()),
        }
        now = match writer.caller.get(path).await {
            Ok(now) => now,
            Err(error) if error.code() == Some(NOT_FOUND) => bail!("{name} was deleted meanwhile"),
            Err(error) => return Err(error.into()),
        };
        if text_at(&now, "/metadata/uid") != Some(uid.as_str()) {
            bail!("skipped: {name} was created again since it was read");
        }
    }
    bail!("{name}: no attempt")
}
