// SPDX-License-Identifier: MIT
// promise.mjs - Node's promises and await at the cases of core.c.
//
// usage: node --expose-gc promise.mjs CASE
// Garbage is collected between the runs and outside the time: Node's own cost
// of freeing is in its numbers only as far as it collects by itself.
import {readFileSync} from 'node:fs';

const links = 1e6, cycles = 5e6, turns = 1e6, yields = 5e6;

const now = () => Number(process.hrtime.bigint());
const row = (what, value, unit) =>
  console.log([what, 'node', Number(value.toPrecision(6)), unit].join('\t'));
const must = (ok) => { if (!ok) throw new Error('wrong result'); };

function rssBytes() {
  const status = readFileSync('/proc/self/status', 'utf8');
  return 1024 * /VmRSS:\s+(\d+)/.exec(status)[1];
}

function withEnd() {
  let resolve;
  const promise = new Promise(r => { resolve = r; });
  return {promise, resolve};
}

function hangLinks(p) {
  for (let i = 0; i < links; i++) p = p.then(x => x + 1);
  return p;
}

async function chain() {
  const {promise, resolve} = withEnd();
  const last = hangLinks(promise);
  resolve(0);
  must(await last === links);
}

async function fanout() {
  let sum = 0;
  const {promise, resolve} = withEnd();
  for (let i = 0; i < links; i++) promise.then(x => { sum += x; });
  resolve(1);
  await promise.then(() => {});
  must(sum === links);
}

async function coldAndWarm(what, once) {
  for (let run = 1; run <= 3; run++) {
    const begin = now();
    await once();
    const spent = now() - begin;
    if (run === 1) row(`${what}-cold`, spent / links, 'ns');
    if (run === 3) row(what, spent / links, 'ns');
    global.gc();
  }
}

// Create, resolve, await: one at a time.
async function cycle() {
  let sum = 0;
  const begin = now();
  for (let i = 0; i < cycles; i++) {
    let resolve;
    const p = new Promise(r => { resolve = r; });
    resolve(1);
    sum += await p;
  }
  row('cycle', (now() - begin) / cycles, 'ns');
  must(sum === cycles);
}

// Two async functions wake each other in turn, a new promise each time.
async function pingPong() {
  const ends = [undefined, undefined];
  const play = async (me, other) => {
    for (let i = 0; i < turns; i++) {
      const {promise, resolve} = withEnd();
      ends[me] = resolve;
      ends[other]?.(1);
      await promise;
    }
    ends[other]?.(1);
  };
  const begin = now();
  await Promise.all([play(0, 1), play(1, 0)]);
  row('await', (now() - begin) / (2 * turns), 'ns');
}

async function giveWay() {
  const loop = async () => {
    for (let i = 0; i < yields; i++) await undefined;
  };
  const begin = now();
  await Promise.all([loop(), loop()]);
  row('yield', (now() - begin) / (2 * yields), 'ns');
}

async function linkBytes() {
  global.gc();
  const before = rssBytes();
  const {promise, resolve} = withEnd();
  const last = hangLinks(promise);
  global.gc();
  row('link-rss', (rssBytes() - before) / links, 'bytes');
  resolve(0);
  await last;
}

const cases = {
  chain: () => coldAndWarm('chain', chain),
  fanout: () => coldAndWarm('fanout', fanout),
  cycle,
  await: pingPong,
  yield: giveWay,
  'link-bytes': linkBytes,
};
await cases[process.argv[2]]();
