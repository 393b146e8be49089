// SPDX-License-Identifier: MIT

// limits.go - x/sync's semaphore and errgroup and x/time/rate at the cases of
// coord.c.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

const (
	permits   = 16
	frees     = 10000000
	tasks     = 1000000
	warmup    = 100000
	admits    = 5000000
	jobs      = 100000
	starts    = 500
	perSecond = 50
)

func peakMiB() float64 {
	status, _ := os.ReadFile("/proc/self/status")
	var kib float64
	for _, line := range strings.Split(string(status), "\n") {
		fmt.Sscanf(line, "VmHWM: %f kB", &kib)
	}
	return kib / 1024
}

func cpu() time.Duration {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ---- semaphore --------------------------------------------------------------

func semFree() {
	s, ctx := semaphore.NewWeighted(permits), context.Background()
	begin := time.Now()
	for i := 0; i < frees; i++ {
		must(s.Acquire(ctx, 3) == nil)
		s.Release(3)
	}
	row("sem-free", perOp(begin, frees), "ns")
	begin = time.Now()
	for i := 0; i < frees; i++ {
		must(s.TryAcquire(3))
		s.Release(3)
	}
	row("sem-free-try", perOp(begin, frees), "ns")
}

// A goroutine per waiter, behind one who holds everything.
func hangWaiters() (*semaphore.Weighted, *sync.WaitGroup) {
	s, ctx := semaphore.NewWeighted(permits), context.Background()
	must(s.TryAcquire(permits))
	var started sync.WaitGroup
	done := new(sync.WaitGroup)
	started.Add(waiters)
	done.Add(waiters)
	for i := 0; i < waiters; i++ {
		weight := int64(i%4 + 1)
		go func() {
			started.Done()
			must(s.Acquire(ctx, weight) == nil)
			s.Release(weight)
			done.Done()
		}()
	}
	started.Wait()
	for i := 0; i < 100; i++ { // the last ones reach the queue
		runtime.Gosched()
	}
	return s, done
}

func drain(s *semaphore.Weighted, done *sync.WaitGroup) {
	s.Release(permits)
	done.Wait()
	must(s.TryAcquire(permits)) // all of it came back
}

func semQueue() float64 {
	begin := time.Now()
	s, done := hangWaiters()
	drain(s, done)
	return perOp(begin, waiters)
}

func semBytes() {
	before := rssBytes()
	s, done := hangWaiters()
	row("sem-bytes", (rssBytes()-before)/waiters, "bytes")
	drain(s, done)
}

// ---- map --------------------------------------------------------------------

func mapTasks(n int64) {
	var sum int64
	var g errgroup.Group
	g.SetLimit(permits)
	for i := int64(0); i < n; i++ {
		i := i
		g.Go(func() error { atomic.AddInt64(&sum, i+1); return nil })
	}
	must(g.Wait() == nil)
	must(sum == n*(n+1)/2)
}

func mapQueue() {
	mapTasks(warmup)
	begin := time.Now()
	mapTasks(tasks)
	row("map-queue", perOp(begin, tasks), "ns")
	row("map-queue-peak", peakMiB(), "MiB")
}

// ---- rate -------------------------------------------------------------------

// Rate only: this limiter knows no concurrency.
func gateFree() {
	l := rate.NewLimiter(1e9, 1<<30)
	begin := time.Now()
	for i := 0; i < admits; i++ {
		must(l.Allow())
	}
	row("gate-free", perOp(begin, admits), "ns")
}

// A quarter of the jobs at once and per 250 ms: the last starts at 0.75 s. With
// two processors this limiter lets some through early.
func rateQueue() {
	l, ctx := rate.NewLimiter(jobs, jobs/4), context.Background()
	var wg sync.WaitGroup
	var ran int64
	wg.Add(jobs)
	begin, used := time.Now(), cpu()
	for i := 0; i < jobs; i++ {
		go func() {
			must(l.Wait(ctx) == nil)
			atomic.AddInt64(&ran, 1)
			wg.Done()
		}()
	}
	wg.Wait()
	row("rate-cpu", float64((cpu()-used).Nanoseconds())/jobs, "ns")
	row("rate-total", time.Since(begin).Seconds(), "s")
	must(ran == jobs)
}

// The first `early` start at 0, the rest at `later`. Of each span of exactly
// 1000 ms, both ends included, that ends with a start: how many have too many
// starts, and the most in one.
func accuracy(what string, early int, later time.Duration) {
	l, ctx := rate.NewLimiter(perSecond, perSecond), context.Background()
	at, begin := make([]time.Duration, 0, starts), time.Now()
	start := func() {
		must(l.Wait(ctx) == nil)
		at = append(at, time.Since(begin))
	}
	for len(at) < early {
		start()
	}
	time.Sleep(later - time.Since(begin))
	arrived := time.Since(begin)
	for len(at) < starts {
		start()
	}
	spans, most, from := 0, 0, 0
	for i := range at {
		for at[i]-at[from] > time.Second {
			from++
		}
		if i-from+1 > perSecond {
			spans++
		}
		if i-from+1 > most {
			most = i - from + 1
		}
	}
	row(what+"-spans", float64(spans), "spans")
	row(what+"-most", float64(most), "starts")
	row(what+"-total", (at[starts-1] - arrived).Seconds(), "s")
}
