//! A connection whose other end has to take what it is sent.
//!
//! A client that stops reading fills the buffers of the kernel, then those of its stream, which are bounded; what is left
//! is that it holds them. So a write that makes no progress for a while ends the connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

pub struct Paced<S> {
    stream: S,
    stall: Duration,
    /// Runs while a write waits.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S> Paced<S> {
    pub fn new(stream: S, stall: Duration) -> Paced<S> {
        Paced { stream, stall, until: None }
    }

    fn paced<T>(&mut self, context: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.until = None;
            return wrote;
        }
        let stall = self.stall;
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(stall)));
        match until.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.paced(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.paced(context, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.paced(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.paced(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut_off_and_a_slow_one_is_not() {
        let (mut client, server) = tokio::io::duplex(10);
        let mut server = Paced::new(server, Duration::from_millis(400));
        let reads = tokio::spawn(async move {
            for _ in 0..8 {
                // Slow is what this is about: together it takes twice the time that one write may wait.
                sleep(Duration::from_millis(100)).await;
                client.read_exact(&mut [0; 10]).await.expect("the server goes on");
            }
            client
        });
        server.write_all(&[1; 90]).await.expect("slow is not stalled");
        let _client = reads.await.expect("it reads");
        let stalled = server.write_all(&[1; 10]).await.expect_err("nobody reads");
        assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
    }
}
