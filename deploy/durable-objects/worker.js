// The journal of Purlin's sessions on Durable Objects. `purlin` speaks to it as the store `https://…`.
//
// One object of ACP_SESSION_DO is one session: its facts and its records, behind compare-and-append. WORKSPACE_STATE_DO keeps
// what undo needs of the workspace: the contents of files. SESSION_INDEX_DO lists the sessions and knows which machines run.
// An object handles one request at a time, and its reply is sent after its writes are durable.

import { DurableObject } from "cloudflare:workers";

const refuse = (kind) => { throw new Error(kind); };

// A row has at most two megabytes, so longer bodies are split.
const PART = 1 << 20;
const parts = (body) => Array.from({ length: Math.max(1, Math.ceil(body.length / PART)) }, (_, part) => body.slice(part * PART, (part + 1) * PART));
const PAGE = 4 << 20;

export class AcpSession extends DurableObject {
  constructor(context, env) {
    super(context, env);
    this.sql = context.storage.sql;
    this.sql.exec("CREATE TABLE IF NOT EXISTS facts(one INTEGER PRIMARY KEY CHECK (one = 1), json TEXT NOT NULL)");
    this.sql.exec("CREATE TABLE IF NOT EXISTS journal(seq INTEGER, part INTEGER, version INTEGER, checksum INTEGER, body TEXT, PRIMARY KEY (seq, part))");
  }

  facts() {
    const row = this.sql.exec("SELECT json FROM facts").toArray()[0];
    return row ? JSON.parse(row.json) : refuse("not_found");
  }

  write(facts, first, records) {
    this.ctx.storage.transactionSync(() => {
      if (facts) this.sql.exec("INSERT OR REPLACE INTO facts VALUES (1, ?)", JSON.stringify(facts));
      records.forEach(({ version, checksum, body }, index) => parts(body).forEach((text, part) => this.sql.exec(
        "INSERT OR REPLACE INTO journal VALUES (?, ?, ?, ?, ?)", first + index, part, version, checksum, text)));
    });
    return facts;
  }

  // Every operation can be repeated: a client that lost the reply sends it again, with `isRepeated`.
  create({ info, owner, own, isRepeated }) {
    const found = this.sql.exec("SELECT json FROM facts").toArray()[0];
    if (found) {
      const facts = JSON.parse(found.json);
      return isRepeated && facts.owner === owner && facts.head === 1 ? facts : refuse("exists");
    }
    return this.write({ ...info, owner, epoch: 1, head: 1 }, 1, [own]);
  }

  take({ owner, epoch, own }) {
    const facts = this.facts();
    if (facts.owner === owner) return facts;
    if (facts.epoch !== epoch) refuse("fenced");
    const head = facts.head + 1;
    return this.write({ ...facts, owner, state: "active", epoch: epoch + 1, head }, head, [own]);
  }

  append({ epoch, head, records, change }) {
    const facts = this.facts();
    const last = head + records.length;
    if (facts.epoch !== epoch) refuse("fenced");
    if (facts.head === last && records.length > 0) {
      const [row] = this.read({ from: last, bytes: 1 });
      const { checksum, body } = records.at(-1);
      if (row.checksum === checksum && row.body === body) return facts;
    }
    if (facts.head !== head) refuse("fenced");
    return this.write({ ...facts, ...change, head: last }, head + 1, records);
  }

  read({ from, bytes }) {
    this.facts();
    const found = [];
    let size = 0;
    for (const row of this.sql.exec("SELECT seq, part, version, checksum, body FROM journal WHERE seq >= ? ORDER BY seq, part", from)) {
      const { part, ...record } = row;
      if (part === 0 && size >= bytes) break;
      if (part === 0) found.push(record); else found.at(-1).body += record.body;
      size += row.body.length * 0.75;
    }
    return found;
  }

  change({ change }) { return this.write({ ...this.facts(), ...change }, 0, []); }

  release({ epoch }) {
    const facts = this.facts();
    return facts.epoch === epoch ? this.write({ ...facts, owner: null }, 0, []) : facts;
  }

  find() { return this.facts(); }

  // A copy gets its records first. It exists when it has its facts, and only then.
  stage({ first, records }) {
    if (this.sql.exec("SELECT 1 FROM facts").toArray().length > 0) refuse("exists");
    this.write(null, first, records);
  }

  insert(facts) { this.write(facts, 0, []); }

  async delete() { await this.ctx.storage.deleteAll(); this.ctx.abort(); }
}

export class WorkspaceState extends DurableObject {
  constructor(context, env) {
    super(context, env);
    context.storage.sql.exec("CREATE TABLE IF NOT EXISTS content(hash TEXT, part INTEGER, body TEXT NOT NULL, PRIMARY KEY (hash, part))");
  }

  put({ hash, body }) {
    const sql = this.ctx.storage.sql;
    if (sql.exec("SELECT 1 FROM content WHERE hash = ?", hash).toArray().length > 0) return false;
    this.ctx.storage.transactionSync(() =>
      parts(body).forEach((text, part) => sql.exec("INSERT INTO content VALUES (?, ?, ?)", hash, part, text)));
    return true;
  }

  get({ hash }) {
    const rows = this.ctx.storage.sql.exec("SELECT body FROM content WHERE hash = ? ORDER BY part", hash).toArray();
    return rows.length > 0 ? rows.map((row) => row.body).join("") : null;
  }

  hashes() { return this.ctx.storage.sql.exec("SELECT DISTINCT hash FROM content").toArray().map((row) => row.hash); }

  async delete() { await this.ctx.storage.deleteAll(); this.ctx.abort(); }
}

export class SessionIndex extends DurableObject {
  constructor(context, env) {
    super(context, env);
    this.sql = context.storage.sql;
    this.sql.exec("CREATE TABLE IF NOT EXISTS session(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, cwd TEXT, updated INTEGER, json TEXT)");
    this.sql.exec("CREATE INDEX IF NOT EXISTS by_time ON session(updated DESC, number DESC)");
    this.sql.exec("CREATE TABLE IF NOT EXISTS node(id TEXT PRIMARY KEY, description TEXT, lease_until INTEGER)");
  }

  set(facts) {
    this.sql.exec(`INSERT INTO session(id, cwd, updated, json) VALUES (?1, ?2, ?3, ?4)
      ON CONFLICT (id) DO UPDATE SET updated = ?3, json = ?4`, facts.id, facts.cwd, facts.updated, JSON.stringify(facts));
  }

  remove(id) { this.sql.exec("DELETE FROM session WHERE id = ?", id); }

  list({ cwd, updated, number, limit }) {
    const rows = this.sql.exec(`SELECT number, json FROM session WHERE (?1 IS NULL OR cwd = ?1) AND (updated, number) < (?2, ?3)
      ORDER BY updated DESC, number DESC LIMIT ?4`, cwd, updated, number, limit).toArray();
    return rows.map((row) => ({ ...JSON.parse(row.json), number: row.number }));
  }

  renew({ node, description, seconds }) {
    this.sql.exec("DELETE FROM node WHERE lease_until < ?", Date.now() - 86400e3);
    this.sql.exec("INSERT OR REPLACE INTO node VALUES (?, ?, ?)", node, description, Date.now() + seconds * 1000);
    return null;
  }

  node({ node }) {
    return this.sql.exec("SELECT description FROM node WHERE id = ? AND lease_until > ?", node, Date.now()).toArray()[0]?.description ?? null;
  }

  forget({ node }) { this.sql.exec("DELETE FROM node WHERE id = ?", node); return null; }
}

const CHANGES_FACTS = ["create", "take", "append", "change", "release"];

async function run(env, operation, body) {
  const index = env.SESSION_INDEX_DO.get(env.SESSION_INDEX_DO.idFromName("index"));
  const session = (id) => env.ACP_SESSION_DO.get(env.ACP_SESSION_DO.idFromName(id));
  const workspace = (id) => env.WORKSPACE_STATE_DO.get(env.WORKSPACE_STATE_DO.idFromName(id));
  switch (operation) {
    case "list": case "renew": case "node": case "forget": return index[operation](body);
    case "put": case "get":
      await session(body.id).find();
      return workspace(body.id)[operation](body);
    case "copy": {
      const facts = await session(body.id).find();
      const isThere = () => session(body.to).find().then(() => true, () => false);
      if (body.isRepeated && (await isThere())) return null;
      const copied = { ...facts, ...body.info, owner: null, epoch: 1 };
      for (let from = 1; from <= facts.head;) {
        const records = await session(body.id).read({ from, bytes: PAGE });
        await session(body.to).stage({ first: from, records });
        from += records.length;
      }
      for (const hash of await workspace(body.id).hashes()) {
        await workspace(body.to).put({ hash, body: await workspace(body.id).get({ hash }) });
      }
      await session(body.to).insert(copied);
      return index.set(copied);
    }
    case "delete":
      // An object that deletes itself ends, and its reply is lost with it.
      await index.remove(body.id);
      await session(body.id).delete().catch(() => {});
      await workspace(body.id).delete().catch(() => {});
      return null;
    case "find": case "read": return session(body.id)[operation](body);
    default: {
      if (!CHANGES_FACTS.includes(operation)) refuse("unknown_operation");
      const facts = await session(body.id)[operation](body);
      if (operation !== "append" || body.change) await index.set(facts);
      return facts;
    }
  }
}

async function isKnown(request, env) {
  const digest = async (text) => new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
  const [given, expected] = await Promise.all([request.headers.get("authorization") ?? "", `Bearer ${env.TOKEN}`].map(digest));
  return crypto.subtle.timingSafeEqual(given, expected);
}

export default {
  async fetch(request, env) {
    if (!env.TOKEN || !(await isKnown(request, env))) return Response.json({ error: "unauthorized" }, { status: 401 });
    const operation = new URL(request.url).pathname.replace(/^\/v1\//, "");
    if (request.method !== "POST") return Response.json({ error: "use POST" }, { status: 405 });
    try {
      return Response.json({ ok: (await run(env, operation, await request.json())) ?? null });
    } catch (error) {
      const kinds = ["not_found", "exists", "fenced", "unknown_operation"];
      const kind = kinds.find((kind) => error.message === kind);
      if (kind) return Response.json({ error: kind }, { status: 409 });
      console.error(operation, error.message);
      return Response.json({ error: "failed" }, { status: 500 });
    }
  },
};
