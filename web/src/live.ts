// The metrics and events of a run: read once, then followed. Later attempts replace steps.
import { useEffect, useMemo, useRef, useState } from "react";
import { call, type Changes, follow, type Schemas } from "./api";

export type Row = Record<string, number | null>;
export type RunEvent = { event: string; time: number; author?: string; message?: string; step?: number; state?: string; [name: string]: unknown };

export interface Live {
  steps: number[];
  rows: Row[];
  names: string[];
  events: RunEvent[];
  now: Changes | undefined;
  hasEnded: boolean;
  column: (name: string) => (number | null)[];
  latest: (name: string) => number | null;
}

export function addRow(rows: Map<number, Row>, row: Row, attempt: { number: number }): void {
  const own = row.attempt ?? 0;
  const step = row.step ?? 0;
  if (own < attempt.number) return;
  if (own > attempt.number) {
    attempt.number = own;
    for (const known of [...rows.keys()]) if (known >= step) rows.delete(known);
  }
  rows.set(step, { ...rows.get(step), ...row });
}

/** Follows a run to its end, and again when `hasEnded` says that it was resumed. */
export function useLive(run: string | null, hasEnded: boolean): Live {
  const rows = useRef(new Map<number, Row>());
  const events = useRef<RunEvent[]>([]);
  const [now, setNow] = useState<Changes>();
  const [version, setVersion] = useState(0);
  useEffect(() => {
    if (!run) return;
    let stop = () => undefined as void;
    let isOver = false;
    setNow(undefined);
    call<Schemas["Curves"]>("run.curves", { run }).then((curves) => {
      if (isOver) return;
      const attempt = { number: curves.attempt };
      rows.current = new Map();
      curves.steps.forEach((step, place) => {
        const row: Row = { step };
        for (const [name, values] of Object.entries(curves.columns)) {
          const value = values[place];
          if (value !== null && value !== undefined) row[name] = value;
        }
        rows.current.set(step, row);
      });
      events.current = curves.events as RunEvent[];
      setVersion((number) => number + 1);
      stop = follow(run, curves.cursor, curves.events_cursor, (changes) => {
        for (const row of changes.rows) addRow(rows.current, row as Row, attempt);
        events.current = [...events.current, ...(changes.new_events as RunEvent[])];
        setNow(changes);
        if (changes.rows.length || changes.new_events.length) setVersion((number) => number + 1);
      });
    }, () => undefined);
    return () => {
      isOver = true;
      stop();
    };
  }, [run, hasEnded]);
  return useMemo(() => {
    const steps = [...rows.current.keys()].sort((a, b) => a - b);
    const ordered = steps.map((step) => rows.current.get(step)!);
    const names = [...new Set(ordered.flatMap((row) => Object.keys(row)))].sort();
    const column = (name: string) => ordered.map((row) => row[name] ?? null);
    const latest = (name: string) => column(name).reverse().find((value) => value !== null) ?? null;
    return { steps, rows: ordered, names, events: events.current, now, hasEnded: now?.has_ended ?? false, column, latest };
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [version, now]);
}
