// What a client in TypeScript relies on. It is only compiled: a name or a type that is missing in the document fails.
import type { components, operations, webhooks } from "./api";

type Agent = components["schemas"]["Agent"];
type NewAgent = operations["createAgent"]["requestBody"]["content"]["application/json"];
type AgentPage = operations["listAgents"]["responses"][200]["content"]["application/json"];
type Ended = webhooks["call.ended"]["post"]["requestBody"]["content"]["application/json"];

export const asked: NewAgent = {
  name: "Front desk",
  type: "inbound",
  language: "en",
  first_message: "Hello",
  use_org_knowledgebase: false,
};

export function names(page: AgentPage): string[] {
  return page.items.map((agent: Agent) => agent.name);
}

export function isOver(status: components["schemas"]["CallStatus"]): boolean {
  switch (status) {
    case "queued":
    case "ringing":
    case "in_progress":
      return false;
    default:
      return true;
  }
}

export function told(event: Ended): string {
  return `${event.type} ${event.data.call_id}: ${event.data.status}`;
}

// @ts-expect-error: no such status
export const wrong: components["schemas"]["CallStatus"] = "over";
