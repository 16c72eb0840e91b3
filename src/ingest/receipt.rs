//! What an ack names, so that it can be asked for later: `<node>.<incarnation>.<shard>:<lsn>.<table>`.

use std::str::FromStr;

use penstock_store::{Incarnation, Lsn, NodeId, TableId};
use uuid::Uuid;

/// Longest text that is looked at.
const MAX_TEXT: usize = 200;

/// Where the rows of a post were made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The data directory.
    pub node: NodeId,
    /// The start that wrote them.
    pub incarnation: Incarnation,
    /// The log that they were written to.
    pub shard: u32,
    /// Where their record starts.
    pub lsn: Lsn,
    /// Their table.
    pub table: TableId,
}

impl std::fmt::Display for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node, incarnation, shard, lsn, table } = self;
        write!(f, "{node}.{incarnation}.{shard}:{lsn}.{}", table.0.simple())
    }
}

/// A text that is no receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not a receipt")]
pub struct NotAReceipt;

impl FromStr for Receipt {
    type Err = NotAReceipt;

    fn from_str(text: &str) -> Result<Self, NotAReceipt> {
        let receipt = parse(text).ok_or(NotAReceipt)?;
        // One text a receipt: it may be compared as text.
        if receipt.to_string() == text { Ok(receipt) } else { Err(NotAReceipt) }
    }
}

fn parse(text: &str) -> Option<Receipt> {
    let mut parts = text.get(..text.len().min(MAX_TEXT))?.split('.');
    let node = NodeId(Uuid::try_parse(parts.next()?).ok()?);
    let incarnation = Incarnation(u64::from_str_radix(parts.next()?, 16).ok()?);
    let (shard, lsn) = parts.next()?.split_once(':')?;
    let table = TableId(Uuid::try_parse(parts.next()?).ok()?);
    let receipt = Receipt { node, incarnation, shard: shard.parse().ok()?, lsn: Lsn(lsn.parse().ok()?), table };
    parts.next().is_none().then_some(receipt)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0dbdfe03-2c1d-4c5e-9b2a-000000000001.646ec13cd9dda411.1:4160.0dbdfe032c1d4c5e9b2a0000000000ff";

    #[test]
    fn a_receipt_is_read_as_it_was_written() {
        let receipt: Receipt = TEXT.parse().expect("should be one");
        assert_eq!(
            (receipt.shard, receipt.lsn, receipt.incarnation),
            (1, Lsn(4160), Incarnation(0x646e_c13c_d9dd_a411))
        );
        assert_eq!(receipt.to_string(), TEXT);
    }

    #[test]
    fn what_is_not_exactly_one_is_refused() {
        let others = [
            String::new(),
            TEXT.to_uppercase(),
            format!("{TEXT}."),
            format!("{TEXT} "),
            TEXT.replace(":4160", ":04160"),
            TEXT.replace(":4160", ":+4160"),
            TEXT.replace(":4160", ""),
            TEXT.replace("1:", "99999999999:"),
            TEXT.replacen('-', "", 4),
            "x".repeat(10_000),
            "é".repeat(150),
        ];
        for other in others {
            assert_eq!(other.parse::<Receipt>(), Err(NotAReceipt), "{other}");
        }
    }

    #[test]
    fn any_receipt_is_read_as_it_was_written() {
        for _ in 0..1_000 {
            let receipt = Receipt {
                node: NodeId(Uuid::from_u128(rand::random())),
                incarnation: Incarnation(rand::random()),
                shard: rand::random(),
                lsn: Lsn(rand::random()),
                table: TableId(Uuid::from_u128(rand::random())),
            };
            assert_eq!(receipt.to_string().parse(), Ok(receipt));
        }
    }
}
