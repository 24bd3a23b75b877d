import Redis from 'ioredis';
import { readFileSync } from 'fs';
import { join } from 'path';
import { loadScript } from './loader';

const dir = join(__dirname, '../lua');

export interface Entry {
  id: number;
  body: string;
}

export class Inbox {
  private readonly maxEntries = 1000;

  constructor(private readonly client: Redis) {
    client.defineCommand('post', { numberOfKeys: 3, lua: loadScript(join(dir, 'post-3.lua')) });
    client.defineCommand('page', { numberOfKeys: 2, lua: loadScript(join(dir, 'page-2.lua')) });
    client.defineCommand('ack', { numberOfKeys: 2, lua: loadScript(join(dir, 'ack-2.lua')) });
  }

  private key(user: string, part: string): string {
    return `inbox:{${user}}:${part}`;
  }

  async post(user: string, body: string): Promise<number> {
    return this.client.post(
      this.key(user, 'ids'), this.key(user, 'counter'), this.key(user, 'entries'), body, this.maxEntries,
    );
  }

  async page(user: string, cursor: number, limit = 20): Promise<Entry[]> {
    const rows = await this.client.page(this.key(user, 'ids'), this.key(user, 'entries'), cursor, limit);
    return rows.map(([id, body]: [number, string]) => ({ id, body }));
  }

  async ack(user: string, id: number): Promise<number> {
    return this.client.ack(this.key(user, 'ids'), this.key(user, 'entries'), id);
  }
}
