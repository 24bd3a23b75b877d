'use strict';
const fs = require('fs');
const path = require('path');
const load = (name) => fs.readFileSync(path.join(__dirname, 'lua', `${name}.lua`), 'utf8');

module.exports = class Semaphore {
  constructor(redis, name, limit, ttl = 10000) {
    this.redis = redis; this.key = `{sem:${name}}`; this.limit = limit; this.ttl = ttl;
    redis.defineCommand('semAcquire', { numberOfKeys: 1, lua: load('acquire') });
    redis.defineCommand('semRelease', { numberOfKeys: 1, lua: load('release') });
    redis.defineCommand('semRefresh', { numberOfKeys: 1, lua: load('refresh') });
  }
  async acquire(id) { return (await this.redis.semAcquire(this.key, Date.now(), this.ttl, this.limit, id)) === 1; }
  async release(id) { return (await this.redis.semRelease(this.key, id)) === 1; }
  async refresh(id) { return (await this.redis.semRefresh(this.key, Date.now(), this.ttl, id)) === 1; }
};
