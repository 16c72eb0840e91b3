//! Writing all of many buffers with a call that may write only some of them. Pure but for the call it is given.

use std::io::{self, ErrorKind, IoSlice};

/// Most buffers that Linux takes in one pwritev (UIO_MAXIOV).
pub(super) const BUFFERS_PER_CALL: usize = 1024;

/// Writes all of `bufs` from `offset` on. `write` puts some of its buffers at the position it is given and answers how
/// many bytes; it is called again for the rest, after EINTR too. An answer of zero is `WriteZero`: it would be for
/// ever.
pub(super) fn write_all(
    bufs: &[IoSlice<'_>],
    mut offset: u64,
    mut write: impl FnMut(&[IoSlice<'_>], u64) -> io::Result<usize>,
) -> io::Result<()> {
    for chunk in bufs.chunks(BUFFERS_PER_CALL) {
        let mut chunk = chunk.to_vec();
        let mut rest = chunk.as_mut_slice();
        IoSlice::advance_slices(&mut rest, 0); // leading empty buffers are nothing to write
        while !rest.is_empty() {
            match write(rest, offset) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    IoSlice::advance_slices(&mut rest, written);
                    offset += written as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
