// SPDX-License-Identifier: MIT
// limits.mjs - the limiters of npm at the cases of coord.c.
//
// usage: node --expose-gc limits.mjs PEER CASE, with node_modules beside it.
// p-queue is used in its strict mode, which came in version 9.
import {readFileSync} from 'node:fs';

const limit = 16, tasks = 1e6, warmup = 1e5, runs = 1e6, jobs = 1e5;
const starts = 500, perSecond = 50;
const [peer, what] = process.argv.slice(2);

const now = () => Number(process.hrtime.bigint());
const row = (name, value, unit) =>
  console.log([name, peer, Number(value.toPrecision(6)), unit].join('\t'));
const must = (ok) => { if (!ok) throw new Error('wrong result'); };
const load = async (name) => (await import(name)).default;

function cpuNs() {
  const used = process.cpuUsage();
  return (used.user + used.system) * 1000;
}

function peakMiB() {
  const status = readFileSync('/proc/self/status', 'utf8');
  return /VmHWM:\s+(\d+)/.exec(status)[1] / 1024;
}

// ---- map: (items, task) => results, at most 16 tasks at once

const maps = {
  async: async () => {
    const {mapLimit} = await load('async');
    return (items, task) => mapLimit(items, limit, task);
  },
  'p-map': async () => {
    const pMap = await load('p-map');
    return (items, task) => pMap(items, task, {concurrency: limit});
  },
  'p-limit': async () => {
    const pLimit = await load('p-limit');
    return (items, task) => {
      const run = pLimit(limit);
      return Promise.all(items.map(i => run(task, i)));
    };
  },
};

async function mapQueue() {
  const map = await maps[peer]();
  const once = async (n) => {
    const items = Array.from({length: n}, (_, i) => i);
    const begin = now();
    const out = await map(items, async i => i + 1);
    const spent = now() - begin;
    must(out.length === n && out.every((v, i) => v === i + 1));
    return spent / n;
  };
  await once(warmup);
  global.gc();
  row('map-queue', await once(tasks), 'ns');
  row('map-queue-peak', peakMiB(), 'MiB');
}

// ---- rate: (max, window in ms) => run a function under that limit

const limiters = {
  'p-throttle': async () => {
    const pThrottle = await load('p-throttle');
    return (max, interval) => pThrottle({limit: max, interval})(fn => fn());
  },
  'p-queue': async () => {
    const PQueue = await load('p-queue');
    return (max, interval, concurrency = Infinity) => {
      const q = new PQueue(
        {intervalCap: max, interval, strict: true, concurrency});
      return fn => q.add(fn);
    };
  },
};

// Jobs that need not wait, each run to its end before the next is asked for.
async function gateRun() {
  const run = (await limiters[peer]())(1e9, 1000, limit);
  let sum = 0;
  const one = () => { sum++; };
  for (let i = 0; i < warmup; i++) await run(one);
  const begin = now();
  for (let i = 0; i < runs; i++) await run(one);
  row('gate-run', (now() - begin) / runs, 'ns');
  must(sum === warmup + runs);
}

// A quarter of the jobs at once and per 250 ms: the last starts at 0.75 s.
async function rateQueue() {
  const run = (await limiters[peer]())(jobs / 4, 250);
  let ran = 0;
  const used = cpuNs(), begin = now(), all = [];
  for (let i = 0; i < jobs; i++) all.push(run(() => { ran++; }));
  await Promise.all(all);
  row('rate-cpu', (cpuNs() - used) / jobs, 'ns');
  row('rate-total', (now() - begin) / 1e9, 's');
  must(ran === jobs);
}

// The first `early` start at 0, the rest at `later` ms. Of each span of exactly
// 1000 ms, both ends included, that ends with a start: how many have too many
// starts, and the most in one.
async function accuracy(early, later) {
  const run = (await limiters[peer]())(perSecond, 1000);
  const at = [], all = [];
  const ask = () => all.push(run(() => { at.push(now()); }));
  for (let i = 0; i < early; i++) ask();
  if (later > 0) await new Promise(r => setTimeout(r, later));
  const arrived = now();
  while (all.length < starts) ask();
  await Promise.all(all);
  must(at.length === starts);
  let spans = 0, most = 0;
  for (let i = 0, from = 0; i < starts; i++) {
    while (at[i] - at[from] > 1e9) from++;
    if (i - from + 1 > perSecond) spans++;
    most = Math.max(most, i - from + 1);
  }
  row(`${what}-spans`, spans, 'spans');
  row(`${what}-most`, most, 'starts');
  row(`${what}-total`, (at[starts - 1] - arrived) / 1e9, 's');
}

const cases = {
  'map-queue': mapQueue,
  'gate-run': gateRun,
  'rate-queue': rateQueue,
  exact: () => accuracy(0, 0),
  late: () => accuracy(1, 900),
};
await cases[what]();
process.exit(0); // a limiter may keep a timer
