// SPDX-License-Identifier: MIT

// main.go - goroutines and channels at the cases of core.c; limits.go has those
// of coord.c, flight.go those of named.c.
//
// usage: GOMAXPROCS=1|2 go-peer CASE. With one processor Go never wakes a
// second thread, with two it is what a user gets; goals use the faster one.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"time"
)

const (
	links    = 1000000
	cycles   = 5000000
	turns    = 1000000
	yields   = 5000000
	spawns   = 1000000
	messages = 1000000
	waiters  = 100000
)

func row(what string, value float64, unit string) {
	fmt.Printf("%s\tgo-p%d\t%.6g\t%s\n", what, runtime.GOMAXPROCS(0), value, unit)
}

func perOp(begin time.Time, n int) float64 {
	return float64(time.Since(begin).Nanoseconds()) / float64(n)
}

func must(ok bool) {
	if !ok {
		panic("wrong result")
	}
}

func rssBytes() float64 {
	debug.FreeOSMemory()
	status, _ := os.ReadFile("/proc/self/status")
	var kib float64
	for _, line := range strings.Split(string(status), "\n") {
		fmt.Sscanf(line, "VmRSS: %f kB", &kib)
	}
	return kib * 1024
}

// One goroutine and one buffered channel per link.
func hangLinks() (head, last chan int) {
	head = make(chan int, 1)
	last = head
	for i := 0; i < links; i++ {
		next := make(chan int, 1)
		go func(in, out chan int) { out <- <-in + 1 }(last, next)
		last = next
	}
	return head, last
}

func chain() float64 {
	begin := time.Now()
	head, last := hangLinks()
	head <- 0
	must(<-last == links)
	return perOp(begin, links)
}

// A million goroutines wait for one channel to be closed.
func fanout() float64 {
	begin := time.Now()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(links)
	for i := 0; i < links; i++ {
		go func() { <-done; wg.Done() }()
	}
	close(done)
	wg.Wait()
	return perOp(begin, links)
}

func coldAndWarm(what string, once func() float64) {
	row(what+"-cold", once(), "ns")
	once()
	row(what, once(), "ns")
}

// A channel as a promise, no goroutine.
func cycle() {
	begin, sum := time.Now(), 0
	for i := 0; i < cycles; i++ {
		c := make(chan int, 1)
		c <- 1
		sum += <-c
	}
	row("cycle", perOp(begin, cycles), "ns")
	must(sum == cycles)
}

// Unbuffered channels: one send, one receive and one switch per way.
func pingPong() {
	ping, pong := make(chan int), make(chan int)
	go func() {
		for v := range ping {
			pong <- v
		}
	}()
	begin := time.Now()
	for i := 0; i < turns; i++ {
		ping <- i
		<-pong
	}
	row("await", perOp(begin, 2*turns), "ns")
}

func giveWay() {
	var wg sync.WaitGroup
	wg.Add(2)
	begin := time.Now()
	for g := 0; g < 2; g++ {
		go func() {
			for i := 0; i < yields; i++ {
				runtime.Gosched()
			}
			wg.Done()
		}()
	}
	wg.Wait()
	row("yield", perOp(begin, 2*yields), "ns")
}

// Start a goroutine and wait for its result. One channel for all of them: the
// fastest way to write it, where ours makes a future for each.
func spawn() {
	begin, sum := time.Now(), 0
	c := make(chan int)
	for i := 0; i < spawns; i++ {
		go func() { c <- 1 }()
		sum += <-c
	}
	row("spawn", perOp(begin, spawns), "ns")
	must(sum == spawns)
}

// Through a channel with room for 1024; the senders are goroutines.
func post(what string, senders int) {
	var ns [5]float64
	for run := range ns {
		begin, sum := time.Now(), 0
		c := make(chan int, 1024)
		for s := 0; s < senders; s++ {
			go func() {
				for i := 0; i < messages/senders; i++ {
					c <- 1
				}
			}()
		}
		for sum < messages {
			sum += <-c
		}
		ns[run] = perOp(begin, messages)
	}
	sort.Float64s(ns[:])
	row(what, ns[2], "ns")
}

func linkBytes() {
	before := rssBytes()
	head, last := hangLinks()
	runtime.Gosched()
	row("link-rss", (rssBytes()-before)/links, "bytes")
	head <- 0
	<-last
}

func fiberBytes() {
	before := rssBytes()
	gate := make(chan struct{})
	var started, done sync.WaitGroup
	started.Add(waiters)
	done.Add(waiters)
	for i := 0; i < waiters; i++ {
		go func() { started.Done(); <-gate; done.Done() }()
	}
	started.Wait()
	row("fiber-bytes", (rssBytes()-before)/waiters, "bytes")
	close(gate)
	done.Wait()
}

func main() {
	cases := map[string]func(){
		"chain":       func() { coldAndWarm("chain", chain) },
		"fanout":      func() { coldAndWarm("fanout", fanout) },
		"cycle":       cycle,
		"await":       pingPong,
		"yield":       giveWay,
		"spawn":       spawn,
		"post-1":      func() { post("post-1", 1) },
		"post-4":      func() { post("post-4", 4) },
		"link-bytes":  linkBytes,
		"fiber-bytes": fiberBytes,
		"sem-free":    semFree,
		"sem-queue":   func() { coldAndWarm("sem-queue", semQueue) },
		"sem-bytes":   semBytes,
		"map-queue":   mapQueue,
		"gate-free":   gateFree,
		"rate-queue":  rateQueue,
		"exact":       func() { accuracy("exact", 0, 0) },
		"late":        func() { accuracy("late", 1, 900*time.Millisecond) },
		"share-hot":   shareHot,
		"share-one":   func() { shareDistinct("share-one", 1, func() {}) },
		"share-many":  func() { shareDistinct("share-many", askers, runtime.Gosched) },
	}
	if len(os.Args) != 2 || cases[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: go-peer CASE")
		os.Exit(2)
	}
	cases[os.Args[1]]()
}
