// The first integration of docs/api.md with the clients that hey-api and orval make, against a daemon: BASE and KEY are in the environment.
import { createAgent, createNumber, deleteAgent, listAgents, showAgent, updateAgent } from "./hey";
import { client } from "./hey/client.gen";
import * as orval from "./orval/api";

declare const process: { env: Record<string, string | undefined>; exit(code: number): never };
declare const console: { log(text: string): void; error(fault: unknown): void };

const base = process.env.BASE ?? "";
const key = process.env.KEY ?? "";

function must(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Error(what);
}

async function withHeyApi(): Promise<void> {
  client.setConfig({ baseUrl: base, auth: () => key });
  const body = {
    name: "Front desk",
    type: "inbound",
    language: "en",
    first_message: "Hello",
    use_org_knowledgebase: false,
  } as const;
  const made = await createAgent({ body, headers: { "Idempotency-Key": "hey-1" }, throwOnError: true });
  const again = await createAgent({ body, headers: { "Idempotency-Key": "hey-1" }, throwOnError: true });
  must(made.data.id === again.data.id, "one agent for one key");

  const tag = made.response.headers.get("ETag") ?? "";
  const path = { agent_id: made.data.id };
  const changed = await updateAgent({ path, body: { name: "Night desk" }, headers: { "If-Match": tag }, throwOnError: true });
  must(changed.data.name === "Night desk", "it has the new name");
  const late = await updateAgent({ path, body: { name: "Too late" }, headers: { "If-Match": tag } });
  must(late.response?.status === 412 && late.error?.code === "outdated", "the version is gone");

  const page = await listAgents({ query: { limit: 1 }, throwOnError: true });
  must(page.data.items[0]?.id === made.data.id && page.data.total > 1, "it is the newest");
  await createNumber({ body: { phone_number: "+442071838750" }, throwOnError: true });
  const gone = await deleteAgent({ path, throwOnError: true });
  must(gone.data.success, "it is deleted");
  const missing = await showAgent({ path });
  must(missing.response?.status === 404 && missing.error?.statusCode === 404, "it isn't there any more");
}

async function withOrval(): Promise<void> {
  const as: RequestInit = { headers: { Authorization: `Bearer ${key}` } };
  const body: Parameters<typeof orval.createAgent>[0] = {
    name: "Back desk",
    type: "inbound",
    language: "en",
    first_message: "Hello",
    use_org_knowledgebase: false,
  };
  const made = await orval.createAgent(body, as);
  must(made.status === 201, "it is made");
  const shown = await orval.showAgent(made.data.id, as);
  must(shown.status === 200 && shown.data.name === "Back desk", "it is shown");
  const page = await orval.listAgents({ type: "inbound" }, as);
  must(page.status === 200 && page.data.items.some((agent) => agent.id === made.data.id), "it is listed");
  const refused = await orval.createAgent({ ...body, language: "x" }, as);
  must(refused.status === 400 && refused.data.errors?.[0]?.path === "language", "the fault has its path");
  const gone = await orval.deleteAgent(made.data.id, as);
  must(gone.status === 200, "it is deleted");
}

withHeyApi()
  .then(withOrval)
  .then(() => console.log("both clients work"))
  .catch((fault: unknown) => {
    console.error(fault);
    process.exit(1);
  });
