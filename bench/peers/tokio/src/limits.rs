// SPDX-License-Identifier: MIT
//! Tokio's semaphore and the buffered streams of futures at the cases of
//! coord.c. Tokio has no rate limiter.
use crate::{per_op, row, rss_bytes, status_bytes, WAITERS};
use futures::stream::{self, StreamExt};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

const PERMITS: u32 = 16;
const FREES: u64 = 10_000_000;
const TASKS: u64 = 1_000_000;
const WARMUP: u64 = 100_000;

async fn sem_free() {
    let s = Semaphore::new(PERMITS as usize);
    let begin = Instant::now();
    for _ in 0..FREES {
        drop(s.acquire_many(3).await.unwrap());
    }
    row("sem-free", per_op(begin, FREES), "ns");
    let begin = Instant::now();
    for _ in 0..FREES {
        drop(s.try_acquire_many(3).unwrap());
    }
    row("sem-free-try", per_op(begin, FREES), "ns");
    assert_eq!(s.available_permits(), PERMITS as usize);
}

/// One task per waiter; when this returns they have all run once, and wait.
async fn hang_waiters(s: &Arc<Semaphore>) -> Vec<JoinHandle<()>> {
    let all = (0..WAITERS as u32)
        .map(|i| {
            let (s, weight) = (s.clone(), i % 4 + 1);
            tokio::spawn(async move { drop(s.acquire_many(weight).await.unwrap()) })
        })
        .collect();
    tokio::task::yield_now().await;
    all
}

async fn drain(s: &Arc<Semaphore>, all: Vec<JoinHandle<()>>) {
    for t in all {
        t.await.unwrap();
    }
    assert_eq!(s.available_permits(), PERMITS as usize);
}

async fn sem_queue() -> f64 {
    let s = Arc::new(Semaphore::new(PERMITS as usize));
    let hold = s.clone().acquire_many_owned(PERMITS).await.unwrap();
    let begin = Instant::now();
    let all = hang_waiters(&s).await;
    drop(hold);
    drain(&s, all).await;
    per_op(begin, WAITERS)
}

async fn sem_bytes() {
    let s = Arc::new(Semaphore::new(PERMITS as usize));
    let hold = s.clone().acquire_many_owned(PERMITS).await.unwrap();
    let before = rss_bytes();
    let all = hang_waiters(&s).await;
    row("sem-bytes", (rss_bytes() - before) / WAITERS as f64, "bytes");
    drop(hold);
    drain(&s, all).await;
}

/// Futures that are ready at once: no scheduler is in it.
async fn map_now(n: u64) {
    let sum = stream::iter(0..n)
        .map(|i| async move { i + 1 })
        .buffer_unordered(PERMITS as usize)
        .fold(0, |sum, v| async move { sum + v })
        .await;
    assert_eq!(sum, n * (n + 1) / 2);
}

/// Each task is spawned, and so goes through the runtime's queue.
async fn map_queue(n: u64) {
    let sum = stream::iter(0..n)
        .map(|i| tokio::spawn(async move { i + 1 }))
        .buffer_unordered(PERMITS as usize)
        .fold(0, |sum, v| async move { sum + v.unwrap() })
        .await;
    assert_eq!(sum, n * (n + 1) / 2);
}

fn map_rows(what: &str, begin: Instant) {
    row(what, per_op(begin, TASKS), "ns");
    row(&format!("{what}-peak"), status_bytes("VmHWM:") / 1048576.0, "MiB");
}

/// Whether it is a case of this suite; it has run then.
pub async fn run(case: &str) -> bool {
    match case {
        "sem-free" => sem_free().await,
        "sem-queue" => {
            row("sem-queue-cold", sem_queue().await, "ns");
            sem_queue().await;
            row("sem-queue", sem_queue().await, "ns");
        }
        "sem-bytes" => sem_bytes().await,
        "map-now" => {
            map_now(WARMUP).await;
            let begin = Instant::now();
            map_now(TASKS).await;
            map_rows(case, begin);
        }
        "map-queue" => {
            map_queue(WARMUP).await;
            let begin = Instant::now();
            map_queue(TASKS).await;
            map_rows(case, begin);
        }
        _ => return false,
    }
    true
}
