// Calls operations: over HTTP, or, in an exported folder or a report, from the answers it holds.
import { useCallback, useEffect, useRef, useState } from "react";
import type { components } from "./schema";

export type Schemas = components["schemas"];
export type Changes = Schemas["Changes"];

export interface Session {
  name: string;
  role: "owner" | "operator" | "viewer";
  can_leave: boolean;
  runs: string;
}

interface Exported {
  session: Session;
  index?: Record<string, string>; // of a folder: the file that holds each answer
  answers?: Record<string, unknown>; // of a report, which is one file
  place?: string;
  left_out?: string[];
}

declare global {
  interface Window {
    SPARRING_EXPORT?: Exported;
    sparringAnswer?: (key: string, answer: unknown) => void;
  }
}

export class Refused extends Error {
  constructor(
    readonly kind: string,
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

export const isExport = (): boolean => window.SPARRING_EXPORT !== undefined;

/** The screen that a report opens with, in place of the list of runs. */
export const firstPlace = (): string => window.SPARRING_EXPORT?.place ?? "";

export const leftOut = (): string[] => window.SPARRING_EXPORT?.left_out ?? [];

/** Whether an operation about a run can have an answer: a report holds some only. */
export function canAsk(operation: string, run: string): boolean {
  const answers = window.SPARRING_EXPORT?.answers;
  return !answers || Object.keys(answers).some((key) => key.startsWith(`${operation} `) && key.includes(`"run":${JSON.stringify(run)}`));
}

/** Reads the answers that this page holds, if it is a report. */
export async function unpackReport(): Promise<void> {
  const packed = document.getElementById("answers")?.textContent;
  if (!packed) return;
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  const exported = JSON.parse(text) as Exported;
  for (const [key, answer] of Object.entries(exported.answers!)) {
    if (key.startsWith("rollout.group ")) shareGroup(exported.answers!, key, answer as Schemas["Group"]);
  }
  window.SPARRING_EXPORT = exported;
}

/** A report holds each group once: the answers about its other rollouts are made from it. */
function shareGroup(answers: Record<string, unknown>, key: string, group: Schemas["Group"]): void {
  const given = JSON.parse(key.slice("rollout.group ".length)) as Arguments;
  for (const { position, record } of group.rollouts) {
    const own = { ...given, rollout: (record as { id: string }).id };
    answers[keyOf("rollout.group", own)] = group;
    answers[keyOf("rollout.show", own)] = { run: group.run, record, position };
  }
}

type Arguments = Record<string, unknown>;

function keyOf(operation: string, given: Arguments): string {
  const chosen = Object.entries(given).filter(([, value]) => value !== undefined && value !== "");
  chosen.sort(([a], [b]) => (a < b ? -1 : 1));
  return `${operation} ${JSON.stringify(Object.fromEntries(chosen))}`;
}

export async function call<T>(operation: string, given: Arguments = {}, signal?: AbortSignal): Promise<T> {
  if (window.SPARRING_EXPORT) return fromExport<T>(window.SPARRING_EXPORT, keyOf(operation, given));
  const response = await fetch(`/api/${operation}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(given),
    credentials: "same-origin",
    signal: signal ?? null,
  });
  if (response.status === 401) window.location.assign("/enter");
  const body = await response.json();
  if (!response.ok) throw new Refused(body.error.type, body.error.message, response.status);
  return body as T;
}

export async function readSession(): Promise<Session> {
  if (window.SPARRING_EXPORT) return window.SPARRING_EXPORT.session;
  const response = await fetch("/api/session", { credentials: "same-origin" });
  if (response.status === 401) window.location.assign("/enter");
  return (await response.json()) as Session;
}

const waiting = new Map<string, (answer: unknown) => void>();
const answered = new Map<string, unknown>();

function fromExport<T>(exported: Exported, key: string): Promise<T> {
  if (answered.has(key)) return Promise.resolve(answered.get(key) as T);
  if (exported.answers && Object.hasOwn(exported.answers, key)) return Promise.resolve(exported.answers[key] as T);
  const file = exported.index && Object.hasOwn(exported.index, key) ? exported.index[key] : undefined;
  if (!file) return Promise.reject(new Refused("NotExported", "This was not exported. Open the run with `sparring view` to see it.", 404));
  window.sparringAnswer = (name, answer) => {
    answered.set(name, answer);
    waiting.get(name)?.(answer);
    waiting.delete(name);
  };
  return new Promise((resolve, reject) => {
    waiting.set(key, (answer) => resolve(answer as T));
    const script = document.createElement("script");
    script.src = file;
    script.onerror = () => reject(new Refused("NotExported", `cannot read ${file}`, 404));
    document.head.append(script);
  });
}

export interface Called<T> {
  data: T | undefined;
  error: Error | undefined;
  isLoading: boolean;
  reload: () => void;
}

const remembered = new Map<string, unknown>();
const MOST_REMEMBERED = 100;

/** Calls an operation whenever its arguments change. The last answer shows until the next is there. */
export function useCall<T>(operation: string, given: Arguments | null, everySeconds = 0): Called<T> {
  const key = given ? keyOf(operation, given) : "";
  const [state, setState] = useState<{ key: string; data?: T; error?: Error }>({ key: "" });
  const [round, setRound] = useState(0);
  const latest = useRef(given);
  latest.current = given;
  useEffect(() => {
    if (!key || !latest.current) return;
    const stop = new AbortController();
    call<T>(operation, latest.current, stop.signal).then(
      (data) => {
        if (stop.signal.aborted) return;
        remembered.delete(key);
        remembered.set(key, data);
        if (remembered.size > MOST_REMEMBERED) remembered.delete(remembered.keys().next().value!);
        setState({ key, data });
      },
      (error: Error) => !stop.signal.aborted && setState({ key, error }),
    );
    return () => stop.abort();
  }, [operation, key, round]);
  useEffect(() => {
    if (!everySeconds || !key || isExport()) return;
    const timer = window.setInterval(() => {
      if (!document.hidden) setRound((number) => number + 1);
    }, everySeconds * 1000);
    return () => window.clearInterval(timer);
  }, [everySeconds, key]);
  const reload = useCallback(() => setRound((number) => number + 1), []);
  const isCurrent = state.key === key;
  const data = isCurrent && state.data !== undefined ? state.data : (remembered.get(key) as T | undefined);
  return { data, error: isCurrent ? state.error : undefined, isLoading: data === undefined && !(isCurrent && state.error), reload };
}

/** Follows a run by server-sent events, from cursors; each message holds only what is new. */
export function follow(run: string, metrics: number, events: number, onChange: (changes: Changes) => void): () => void {
  if (isExport()) return () => undefined;
  let cursors = { metrics, events };
  let source: EventSource | undefined;
  let retry = 0;
  let timer = 0;
  const open = () => {
    const query = new URLSearchParams({ run, metrics: String(cursors.metrics), events: String(cursors.events) });
    source = new EventSource(`/api/live?${query}`);
    source.onmessage = (message) => {
      const changes = JSON.parse(message.data as string) as Changes;
      cursors = { metrics: changes.metrics, events: changes.events };
      retry = 0;
      onChange(changes);
    };
    source.addEventListener("end", () => source?.close());
    source.onerror = () => {
      source?.close();
      retry = Math.min(retry + 1, 6);
      timer = window.setTimeout(open, 500 * 2 ** retry);
    };
  };
  open();
  return () => {
    source?.close();
    window.clearTimeout(timer);
  };
}
