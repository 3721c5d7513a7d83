// What happened during a training, on the axis of its steps: checkpoints, guards, restarts, its end.
import { useState } from "react";
import { visible, when, words } from "../format";
import type { RunEvent } from "../live";

export type PinKind = "checkpoint" | "warning" | "restart" | "failed" | "stop";

export interface Pin {
  step: number;
  kind: PinKind;
  text: string;
  time: number;
}

const KINDS: Record<string, PinKind> = { checkpoint: "checkpoint", warning: "warning", restart: "restart", failed: "failed", stop_requested: "stop" };
export const PIN_COLORS: Record<PinKind, string> = { checkpoint: "--faint", warning: "--warn", restart: "--accent", failed: "--bad", stop: "--warn" };
const LABELS: Record<PinKind, string> = { checkpoint: "checkpoint", warning: "warning or guard", restart: "restart", failed: "failure", stop: "stop" };

/** Guards begin their messages with the step; other events without one are placed by their time. */
function stepIn(event: RunEvent): number | undefined {
  const found = /^step (\d+):/.exec(event.message ?? "");
  return typeof event.step === "number" ? event.step : found ? Number(found[1]) : undefined;
}

function stepAt(time: number, known: [number, number][]): number {
  const after = known.findIndex(([each]) => each >= time);
  if (after <= 0) return known[after === 0 ? 0 : known.length - 1]?.[1] ?? 0;
  const [[early, low], [late, high]] = [known[after - 1]!, known[after]!];
  return late === early ? high : low + ((high - low) * (time - early)) / (late - early);
}

export function pinsOf(events: RunEvent[], last: number): Pin[] {
  const started = events.find((event) => event.event === "started" || event.state === "running")?.time ?? events[0]?.time ?? 0;
  const known: [number, number][] = [[started, 0]];
  for (const event of events) {
    const step = stepIn(event);
    if (step !== undefined && step >= known[known.length - 1]![1]) known.push([event.time, step]);
  }
  known.push([events[events.length - 1]?.time ?? started, last]);
  return events
    .filter((event) => Object.hasOwn(KINDS, event.event))
    .map((event) => {
      const kind = KINDS[event.event]!;
      const step = stepIn(event) ?? stepAt(event.time, known);
      const text = event.message || (kind === "checkpoint" ? `checkpoint at step ${step}` : words(event.event));
      return { step, kind, text, time: event.time };
    });
}

export function Timeline({ pins, first, last }: { pins: Pin[]; first: number; last: number }) {
  const [shown, show] = useState<Pin>();
  if (!pins.length) return null;
  const kinds = [...new Set(pins.map((pin) => pin.kind))];
  const place = (step: number) => `${Math.max(0, Math.min(100, (100 * (step - first)) / Math.max(1, last - first)))}%`;
  return (
    <section className="card timeline" aria-label="Time line">
      <div className="row wrap">
        <h2>Time line</h2>
        <span className="legend">{kinds.map((kind) => <span key={kind}><i style={{ background: `var(${PIN_COLORS[kind]})` }} />{LABELS[kind]} <b>{pins.filter((pin) => pin.kind === kind).length}</b></span>)}</span>
      </div>
      <div className="track">
        {pins.slice(-400).map((pin, number) => (
          <button
            key={number} className="pin" style={{ left: place(pin.step), color: `var(${PIN_COLORS[pin.kind]})` }} aria-pressed={pin === shown}
            aria-label={`step ${Math.round(pin.step)}, ${LABELS[pin.kind]}: ${visible(pin.text).slice(0, 200)}`}
            onMouseEnter={() => show(pin)} onFocus={() => show(pin)} onClick={() => show(pin)}
          />
        ))}
      </div>
      <div className="row faint num" style={{ justifyContent: "space-between" }}><span>step {first}</span><span>step {last}</span></div>
      <p className="soft pin-text" aria-live="polite">{shown ? <><b className="num">step {Math.round(shown.step)}</b> · {when(shown.time)} · <bdi className="foreign">{visible(shown.text)}</bdi></> : latestText(pins)}</p>
    </section>
  );
}

function latestText(pins: Pin[]) {
  const loud = pins.filter((pin) => pin.kind !== "checkpoint");
  const latest = loud[loud.length - 1];
  return latest ? <><b className="num">step {Math.round(latest.step)}</b> · <bdi className="foreign">{visible(latest.text)}</bdi></> : "Only checkpoints: no guard warned, and nothing was restarted.";
}
