//! The store through its public face.

mod basics;
mod boot;
mod checkpoint;
mod corrupt;
mod damaged_bytes;
mod decoders;
mod fixtures;
mod hook;
mod keys;
mod killed;
mod kit;
mod oracle;
mod poison;
mod producers;
mod reshape;
mod restart;
mod simulation;
mod space;
mod tools;
mod torn;
