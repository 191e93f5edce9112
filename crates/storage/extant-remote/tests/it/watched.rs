//! A store in memory whose requests a test watches, holds or denies. The tests of the library use it, too.

use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Request that makes an object.
pub struct Put<'r> {
    pub at: &'r Path,
    pub data: PutPayload,
    store: &'r InMemory,
    options: PutOptions,
}

impl Put<'_> {
    /// Makes the object.
    pub async fn make(self) -> Result<PutResult> {
        self.store.put_opts(self.at, self.data, self.options).await
    }
}

/// Behaviour of a test at the requests to a store.
#[async_trait::async_trait]
pub trait Watch: fmt::Debug + Send + Sync + 'static {
    /// Answers a request that makes an object.
    async fn put(&self, put: Put<'_>) -> Result<PutResult>;

    /// Called before an object is read or deleted.
    fn before(&self, _at: &Path) -> Result<()> {
        Ok(())
    }

    /// Called with the length of a range that was read.
    fn read(&self, _bytes: u64) {}

    /// Called before objects are listed.
    fn list(&self) {}
}

/// The store.
#[derive(Debug, Default)]
pub struct Watched<W> {
    pub store: Arc<InMemory>,
    pub watch: W,
}

impl<W> Deref for Watched<W> {
    type Target = W;

    fn deref(&self) -> &W {
        &self.watch
    }
}

impl<W> fmt::Display for Watched<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("watched")
    }
}

#[async_trait::async_trait]
impl<W: Watch> ObjectStore for Watched<W> {
    async fn put_opts(&self, at: &Path, data: PutPayload, o: PutOptions) -> Result<PutResult> {
        let (store, options) = (&*self.store, o);
        let put = Put {
            at,
            data,
            store,
            options,
        };
        self.watch.put(put).await
    }
    async fn put_multipart_opts(
        &self,
        at: &Path,
        o: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(at, o).await
    }
    async fn get_opts(&self, at: &Path, o: GetOptions) -> Result<GetResult> {
        self.watch.before(at)?;
        let got = self.store.get_opts(at, o).await?;
        self.watch.read(got.range.end - got.range.start);
        Ok(got)
    }
    async fn delete(&self, at: &Path) -> Result<()> {
        self.watch.before(at)?;
        self.store.delete(at).await
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.watch.list();
        self.store.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }
    async fn copy(&self, from: &Path, to: &Path) -> Result<()> {
        self.store.copy(from, to).await
    }
    async fn copy_if_not_exists(&self, from: &Path, to: &Path) -> Result<()> {
        self.store.copy_if_not_exists(from, to).await
    }
}
