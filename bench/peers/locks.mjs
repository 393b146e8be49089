// SPDX-License-Identifier: MIT
// locks.mjs - redlock and bottleneck at the cases of redis_run.c.
//
// usage: node locks.mjs PEER CASE, with node_modules beside it and the path of
// the server's socket in VOW_BENCH_REDIS. Both by ioredis.
import Redis from 'ioredis';

const locks = 3000, crowd = 64, many = 12800;
const jobs = 2000, queued = 1000, places = 16, lease = 10000;
const [peer, what] = process.argv.slice(2);
const path = process.env.VOW_BENCH_REDIS;

const redis = new Redis({path});
const now = () => Number(process.hrtime.bigint());
const row = (name, value, unit) =>
  console.log([name, peer, Number(value.toPrecision(6)), unit].join('\t'));
const must = (ok) => { if (!ok) throw new Error('wrong result'); };
const load = async (name) => (await import(name)).default;
const sleep = (ms) => new Promise(r => setTimeout(r, ms));

// Calls of scripts at the server so far.
async function scripts() {
  const stats = await redis.info('commandstats');
  const calls = [...stats.matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g)];
  return calls.reduce((sum, m) => sum + Number(m[1]), 0);
}

// `once` again and again, so many at once, until there were n: nanoseconds.
async function run(n, atOnce, once) {
  let next = 0, done = 0;
  const worker = async () => {
    for (; next < n; done++) await once(next++);
  };
  const begin = now();
  await Promise.all(Array.from({length: atOnce}, worker));
  must(done === n);
  return now() - begin;
}

// A name is locked for work that does nothing.
async function lock() {
  const Redlock = await load('redlock');
  const redlock = new Redlock([redis]);
  let number = 0;
  const once = async () => {
    const held = await redlock.lock(`lock ${number++}`, lease);
    await held.unlock();
  };
  await run(crowd, 1, once);
  const calls = await scripts();
  row('lock-one', await run(locks, 1, once) / locks / 1e3, 'us');
  row('lock-trips', (await scripts() - calls) / locks, 'trips');
  row('lock-many', many / (await run(many, crowd, once) / 1e9), 'names/s');
}

// A job that does nothing has one of the places.
async function job() {
  const Bottleneck = await load('bottleneck');
  const limiter = new Bottleneck({
    id: 'jobs', datastore: 'ioredis', clearDatastore: true, Redis,
    clientOptions: {path}, maxConcurrent: places,
  });
  await limiter.ready();
  let ran = 0;
  const once = () => limiter.schedule(async () => { ran++; });
  await run(crowd, 1, once);
  let calls = await scripts();
  row('job-one', await run(jobs, 1, once) / jobs / 1e3, 'us');
  await sleep(50);
  row('job-trips', (await scripts() - calls) / jobs, 'trips');
  calls = await scripts();
  row('job-many', queued / (await run(queued, queued, once) / 1e9), 'jobs/s');
  await sleep(50);
  row('job-many-trips', (await scripts() - calls) / queued, 'trips');
  must(ran === crowd + jobs + queued);
}

await {lock, job}[what]();
process.exit(0); // connections stay open
