//! The types of RocksDB that limitador names. Its Redis storage needs its disk storage to compile,
//! and that needs RocksDB, which takes long to build and needs clang. Nothing opens a database
//! here.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

#[derive(Debug, PartialEq, Eq)]
pub enum ErrorKind {
    TimedOut,
    TryAgain,
}

/// No operation gets as far as to return one.
#[derive(Debug)]
pub struct Error(Infallible);

impl Error {
    pub fn kind(&self) -> ErrorKind {
        match self.0 {}
    }
}

impl fmt::Display for Error {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

impl std::error::Error for Error {}

pub enum DBCompressionType {
    Bz2,
    None,
}

pub enum CompactionDecision {
    Keep,
    Remove,
}

pub enum IteratorMode {
    Start,
}

/// What is merged.
pub struct MergeOperands;

impl<'a> IntoIterator for &'a MergeOperands {
    type Item = &'a [u8];
    type IntoIter = std::iter::Empty<&'a [u8]>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::empty()
    }
}

#[derive(Default)]
pub struct Options;

impl Options {
    pub fn set_compression_type(&mut self, _: DBCompressionType) {}

    pub fn set_compaction_filter<F>(&mut self, _: &str, _: F)
    where
        F: FnMut(u32, &[u8], &[u8]) -> CompactionDecision + Send + 'static,
    {
    }

    pub fn set_merge_operator_associative<F>(&mut self, _: &str, _: F)
    where
        F: Fn(&[u8], Option<&[u8]>, &MergeOperands) -> Option<Vec<u8>> + Clone + Send + 'static,
    {
    }

    pub fn create_if_missing(&mut self, _: bool) {}
}

pub struct MultiThreaded;

pub struct DBWithThreadMode<T>(Infallible, PhantomData<T>);

pub type DB = DBWithThreadMode<MultiThreaded>;

type Entries = std::iter::Empty<Result<(Box<[u8]>, Box<[u8]>), Error>>;

impl<T> DBWithThreadMode<T> {
    pub fn open(_: &Options, _: impl AsRef<Path>) -> Result<Self, Error> {
        unimplemented!("nothing is stored on disk")
    }

    pub fn get(&self, _: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        match self.0 {}
    }

    pub fn delete(&self, _: impl AsRef<[u8]>) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn merge(&self, _: impl AsRef<[u8]>, _: impl AsRef<[u8]>) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn iterator(&self, _: IteratorMode) -> Entries {
        match self.0 {}
    }

    pub fn prefix_iterator(&self, _: impl AsRef<[u8]>) -> Entries {
        match self.0 {}
    }
}
