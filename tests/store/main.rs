//! The store through its public face.

mod basics;
mod boot;
mod corrupt;
mod fixtures;
mod hook;
mod kit;
mod oracle;
mod poison;
mod restart;
mod simulation;
mod space;
mod torn;
