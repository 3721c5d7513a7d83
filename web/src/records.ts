// The record of a rollout, as its log holds it.

export interface Judgement {
  measure: string;
  outcome: "passed" | "failed" | "scored" | "cannot_tell";
  score: number | null;
  reason: string;
  weight: number;
  threshold: number;
  cause: string | null;
}

export interface RequestedCall {
  id: string;
  tool: string;
  arguments: string;
}

export interface Message {
  role: string;
  content: string;
  agent?: string;
  thinking?: string;
  call_id?: string;
  calls?: RequestedCall[];
}

export interface ToolCall extends RequestedCall {
  result: string;
  failure: string | null;
  agent: string;
}

export interface TokenRow {
  agent: string;
  start: string;
  parent?: number;
}

export interface RolloutRecord {
  id: string;
  key?: { seed: number; step: number; index: number };
  case: { id: string; input: unknown; expected: unknown; split: string };
  ending: string;
  detail: string;
  answer: string;
  reward: number | null;
  advantage?: number;
  dropped?: string;
  judgements: Judgement[];
  turns: number;
  tokens: { prompt: number; sampled: number };
  messages: Message[];
  tool_calls: ToolCall[];
  rows?: TokenRow[];
}

export function passedOf(judgement: Judgement): boolean | null {
  return judgement.score === null ? null : judgement.score >= judgement.threshold;
}

export function recordPassed(record: RolloutRecord): boolean | null {
  if (!record.judgements.length) return null;
  const all = record.judgements.map(passedOf);
  return all.includes(null) ? null : all.every(Boolean);
}

/** How many of the first messages are the case's own input, such as worked examples. */
export function givenCount(record: RolloutRecord): number {
  const input = record.case.input;
  const given = Array.isArray(input) ? input : [{ content: String(input ?? "") }];
  const last = [...given].reverse().find((each) => typeof each?.content === "string" || typeof each?.output === "string");
  const text = last?.content ?? last?.output;
  const most = Math.min(record.messages.length, given.length + 2);
  for (let place = most; place > 0; place -= 1) {
    const message = record.messages[place - 1]!;
    if (message.content === text && message.role !== "assistant") return place;
  }
  return 0;
}

/** What the case asks: its input, or the last message of it. */
export function questionOf(record: RolloutRecord): string {
  const input = record.case.input;
  if (typeof input === "string") return input;
  if (!Array.isArray(input)) return JSON.stringify(input) ?? "";
  const last = [...input].reverse().find((each) => typeof each?.content === "string");
  return String(last?.content ?? "");
}

export function asDemonstration(record: RolloutRecord): string {
  const messages = record.messages.map((message) => {
    if (message.role === "tool") return { role: "tool", tool_call_id: message.call_id, content: message.content };
    const calls = message.calls?.map((call) => ({
      id: call.id,
      type: "function",
      function: { name: call.tool, arguments: call.arguments },
    }));
    return { role: message.role, content: message.content, ...(calls?.length ? { tool_calls: calls } : {}) };
  });
  return JSON.stringify({ messages });
}

export function asCase(record: RolloutRecord): string {
  return JSON.stringify({ input: record.case.input, expected: record.case.expected });
}
