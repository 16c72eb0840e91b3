//! A file's bytes: pages and a length. Missing pages are zeros, and so is every byte behind the length.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The unit in which the page cache writes back, in bytes (x86-64, and arm64 as commonly configured).
pub(super) const PAGE_BYTES: usize = 4096;

pub(super) type Page = [u8; PAGE_BYTES];

const PAGE: u64 = PAGE_BYTES as u64;

/// Copies share their pages until one of them is written.
#[derive(Clone, Default)]
pub(super) struct Image {
    pages: BTreeMap<u64, Arc<Page>>,
    len: u64,
}

impl Image {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn page(&self, index: u64) -> Option<&Arc<Page>> {
        self.pages.get(&index)
    }

    pub(super) fn set_page(&mut self, index: u64, page: Option<Arc<Page>>) {
        match page {
            Some(page) => self.pages.insert(index, page),
            None => self.pages.remove(&index),
        };
    }

    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if end(offset, buf.len())? > self.len {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, format!("the file ends at {}", self.len)));
        }
        let (mut offset, mut buf) = (offset, buf);
        while !buf.is_empty() {
            let (index, start) = (offset / PAGE, in_page(offset));
            let (head, tail) = buf.split_at_mut(buf.len().min(PAGE_BYTES - start));
            match self.pages.get(&index) {
                Some(page) => head.copy_from_slice(&page[start..start + head.len()]),
                None => head.fill(0),
            }
            offset += head.len() as u64;
            buf = tail;
        }
        Ok(())
    }

    /// Writes, extending the length; answers the pages touched, `None` for no bytes.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<Option<RangeInclusive<u64>>> {
        let end = end(offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let (index, start) = (at / PAGE, in_page(at));
            let (head, tail) = rest.split_at(rest.len().min(PAGE_BYTES - start));
            let page = self.pages.entry(index).or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[start..start + head.len()].copy_from_slice(head);
            at += head.len() as u64;
            rest = tail;
        }
        self.len = self.len.max(end);
        Ok(Some(offset / PAGE..=(end - 1) / PAGE))
    }

    /// Cuts or extends by a hole; answers the pages that changed.
    pub(super) fn set_len(&mut self, len: u64) -> Vec<u64> {
        let mut changed = Vec::new();
        if len < self.len {
            changed.extend(self.pages.split_off(&len.div_ceil(PAGE)).into_keys());
            if let Some(page) = self.pages.get_mut(&(len / PAGE)) {
                Arc::make_mut(page)[in_page(len)..].fill(0);
                changed.push(len / PAGE);
            }
        }
        self.len = len;
        changed
    }

    pub(super) fn to_vec(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.len).map_err(|_| ErrorKind::FileTooLarge)?];
        self.read(&mut bytes, 0)?;
        Ok(bytes)
    }
}

/// First byte behind a page.
pub(super) fn page_end(index: u64) -> u64 {
    (index + 1) * PAGE
}

fn in_page(offset: u64) -> usize {
    (offset % PAGE) as usize
}

/// First byte behind a range; file offsets are signed to the kernel.
pub(super) fn end(offset: u64, len: usize) -> io::Result<u64> {
    let end = offset.checked_add(len as u64).filter(|end| i64::try_from(*end).is_ok());
    end.ok_or_else(|| ErrorKind::InvalidInput.into())
}
