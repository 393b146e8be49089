// SPDX-License-Identifier: MIT

// flight.go - x/sync's singleflight at the cases of named.c. Keys are made
// before the time is taken. Goroutines that ask for one key stay and ask again;
// the work gives way once, so that all others can join.
package main

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	askers   = 1000
	asks     = 1000000
	askFirst = 100000
)

// n calls by g goroutines, each with its part of the keys; the runs, and the
// time of a call.
func fly(g, n int, keys []string, work func()) (int64, float64) {
	var group singleflight.Group
	var wg sync.WaitGroup
	var runs, sum int64
	wg.Add(g)
	begin := time.Now()
	for j := 0; j < g; j++ {
		go func(j int) {
			var own int64
			for i := j * (n / g); i < (j+1)*(n/g); i++ {
				v, err, _ := group.Do(keys[i%len(keys)], func() (interface{}, error) {
					atomic.AddInt64(&runs, 1)
					work()
					return 1, nil
				})
				must(err == nil)
				own += int64(v.(int))
			}
			atomic.AddInt64(&sum, own)
			wg.Done()
		}(j)
	}
	wg.Wait()
	spent := perOp(begin, n)
	must(sum == int64(n))
	return runs, spent
}

func shareHot() {
	hot := []string{"hot"}
	fly(askers, askFirst, hot, runtime.Gosched)
	runs, spent := fly(askers, asks, hot, runtime.Gosched)
	for _, what := range []string{"share-hot", "share-hot-own"} {
		row(what, spent, "ns")
		row(what+"-runs", float64(runs)*askers/asks, "runs")
	}
}

func shareDistinct(what string, g int, work func()) {
	keys := make([]string, asks)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	fly(g, askFirst, keys, work)
	runs, spent := fly(g, asks, keys, work)
	must(runs == asks)
	row(what, spent, "ns")
}
