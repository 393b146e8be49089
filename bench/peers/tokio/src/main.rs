// SPDX-License-Identifier: MIT
//! Tokio's tasks and oneshot channels at the cases of core.c; limits.rs has
//! those of coord.c.
//!
//! usage: tokio-peer CASE, on the current_thread runtime: one loop, one thread,
//! as ours, and the faster of its two runtimes at this work. It has timers, as
//! every loop of ours has. Its I/O driver is left out: with it a task switch
//! takes twice as long, without timers half as long.
mod limits;

use futures::future::FutureExt;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

const LINKS: u64 = 1_000_000;
const CYCLES: u64 = 5_000_000;
const TURNS: u64 = 1_000_000;
const YIELDS: u64 = 5_000_000;
const SPAWNS: u64 = 1_000_000;
const MESSAGES: u64 = 1_000_000;
const WAITERS: u64 = 100_000;

fn row(what: &str, value: f64, unit: &str) {
    println!("{what}\ttokio\t{value:.6}\t{unit}");
}

fn per_op(begin: Instant, n: u64) -> f64 {
    begin.elapsed().as_nanos() as f64 / n as f64
}

fn status_bytes(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with(field)).unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024.0
}

fn rss_bytes() -> f64 {
    status_bytes("VmRSS:")
}

/// One oneshot channel and one spawned task per link, all of them waiting.
async fn hang_links() -> (oneshot::Sender<u64>, oneshot::Receiver<u64>) {
    let (head, mut last) = oneshot::channel::<u64>();
    for _ in 0..LINKS {
        let (tx, rx) = oneshot::channel();
        tokio::spawn(async move {
            let _ = tx.send(last.await.unwrap() + 1);
        });
        last = rx;
    }
    tokio::task::yield_now().await;
    (head, last)
}

async fn chain() -> f64 {
    let begin = Instant::now();
    let (head, last) = hang_links().await;
    head.send(0).unwrap();
    assert_eq!(last.await.unwrap(), LINKS);
    per_op(begin, LINKS)
}

/// One shared future, a million tasks that wait for it.
async fn fanout() -> f64 {
    let begin = Instant::now();
    let (tx, rx) = oneshot::channel::<u64>();
    let shared = rx.map(|r| r.unwrap()).shared();
    let all: Vec<_> = (0..LINKS).map(|_| tokio::spawn(shared.clone())).collect();
    tokio::task::yield_now().await;
    tx.send(1).unwrap();
    let mut sum = 0;
    for t in all {
        sum += t.await.unwrap();
    }
    assert_eq!(sum, LINKS);
    per_op(begin, LINKS)
}

/// A settled channel is read at once: no queue is in it, unlike ours.
async fn cycle() {
    let (begin, mut sum) = (Instant::now(), 0);
    for _ in 0..CYCLES {
        let (tx, rx) = oneshot::channel::<u64>();
        tx.send(1).unwrap();
        sum += rx.await.unwrap();
    }
    row("cycle", per_op(begin, CYCLES), "ns");
    assert_eq!(sum, CYCLES);
}

type Ends = std::rc::Rc<std::cell::RefCell<[Option<oneshot::Sender<u64>>; 2]>>;

fn wake(ends: &Ends, who: usize) {
    if let Some(tx) = ends.borrow_mut()[who].take() {
        tx.send(1).unwrap();
    }
}

async fn play(ends: Ends, me: usize) {
    for _ in 0..TURNS {
        let (tx, rx) = oneshot::channel();
        ends.borrow_mut()[me] = Some(tx);
        wake(&ends, 1 - me);
        rx.await.unwrap();
    }
    wake(&ends, 1 - me);
}

/// Two tasks wake each other in turn, a new oneshot channel each time.
async fn ping_pong() {
    let ends = Ends::default();
    let begin = Instant::now();
    let a = tokio::task::spawn_local(play(ends.clone(), 0));
    let b = tokio::task::spawn_local(play(ends, 1));
    a.await.unwrap();
    b.await.unwrap();
    row("await", per_op(begin, 2 * TURNS), "ns");
}

/// The task switch: two tasks give way to each other.
async fn give_way() {
    let one = || async {
        for _ in 0..YIELDS {
            tokio::task::yield_now().await;
        }
    };
    let begin = Instant::now();
    let (a, b) = (tokio::spawn(one()), tokio::spawn(one()));
    a.await.unwrap();
    b.await.unwrap();
    row("yield", per_op(begin, 2 * YIELDS), "ns");
}

async fn spawn() {
    let (begin, mut sum) = (Instant::now(), 0);
    for _ in 0..SPAWNS {
        sum += tokio::spawn(async { 1 }).await.unwrap();
    }
    row("spawn", per_op(begin, SPAWNS), "ns");
    assert_eq!(sum, SPAWNS);
}

async fn post_once(senders: u64) -> f64 {
    let (tx, mut rx) = mpsc::unbounded_channel::<u64>();
    let (begin, mut sum) = (Instant::now(), 0);
    for _ in 0..senders {
        let tx = tx.clone();
        std::thread::spawn(move || {
            for _ in 0..MESSAGES / senders {
                tx.send(1).unwrap();
            }
        });
    }
    while sum < MESSAGES {
        sum += rx.recv().await.unwrap();
    }
    per_op(begin, MESSAGES)
}

async fn post(what: &str, senders: u64) {
    let mut ns = Vec::new();
    for _ in 0..5 {
        ns.push(post_once(senders).await);
    }
    ns.sort_by(|a, b| a.partial_cmp(b).unwrap());
    row(what, ns[2], "ns");
}

async fn link_bytes() {
    let before = rss_bytes();
    let (head, last) = hang_links().await;
    row("link-rss", (rss_bytes() - before) / LINKS as f64, "bytes");
    head.send(0).unwrap();
    last.await.unwrap();
}

async fn fiber_bytes() {
    let before = rss_bytes();
    let (tx, rx) = oneshot::channel::<u64>();
    let shared = rx.map(|r| r.unwrap()).shared();
    let all: Vec<_> = (0..WAITERS).map(|_| tokio::spawn(shared.clone())).collect();
    tokio::task::yield_now().await;
    row("fiber-bytes", (rss_bytes() - before) / WAITERS as f64, "bytes");
    tx.send(1).unwrap();
    for t in all {
        t.await.unwrap();
    }
}

async fn run(case: &str) {
    match case {
        "chain" => {
            row("chain-cold", chain().await, "ns");
            chain().await;
            row("chain", chain().await, "ns");
        }
        "fanout" => {
            row("fanout-cold", fanout().await, "ns");
            fanout().await;
            row("fanout", fanout().await, "ns");
        }
        "cycle" => cycle().await,
        "yield" => give_way().await,
        "spawn" => spawn().await,
        "post-1" => post(case, 1).await,
        "post-4" => post(case, 4).await,
        "link-bytes" => link_bytes().await,
        "fiber-bytes" => fiber_bytes().await,
        _ => assert!(limits::run(case).await, "no such case"),
    }
}

fn main() {
    let case = std::env::args().nth(1).expect("usage: tokio-peer CASE");
    let rt = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    if case == "await" {
        // Local tasks: the two share their ends without a lock.
        let local = tokio::task::LocalSet::new();
        return local.block_on(&rt, ping_pong());
    }
    // A spawned root, so that its awaits go through the scheduler like any other's.
    rt.block_on(async move { tokio::spawn(async move { run(&case).await }).await.unwrap() });
}
