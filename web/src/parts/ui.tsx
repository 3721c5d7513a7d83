// Small shared parts: icons, badges, notices, folds.
import { type ReactNode, useEffect, useState } from "react";
import { words } from "../format";

export const PLAYED_AFTER = "The number of updates before it was played. Step 8 of the curves learns from the rollouts after step 7.";

const PATHS = {
  check: "M3 8.5l3.2 3.2L13 4.8",
  cross: "M4 4l8 8M12 4l-8 8",
  question: "M6 6a2 2 0 113 1.7c-.7.4-1 .8-1 1.6M8 12v.1",
  moon: "M13 9.5A5.5 5.5 0 016.5 3 5.5 5.5 0 1013 9.5z",
  sun: "M8 5a3 3 0 100 6 3 3 0 000-6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  help: "M8 1.5a6.5 6.5 0 100 13 6.5 6.5 0 000-13zM6.3 6.2a1.8 1.8 0 113 1.6c-.8.5-1.3.8-1.3 1.7M8 11.6v.1",
  left: "M10 3L5 8l5 5",
  right: "M6 3l5 5-5 5",
} as const;

export function Icon({ name }: { name: keyof typeof PATHS }) {
  return (
    <svg viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.7" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Mark({ passed }: { passed: boolean | null | undefined }) {
  const [name, tone, label] =
    passed === true ? (["check", "good", "passed"] as const) : passed === false ? (["cross", "bad", "failed"] as const) : (["question", "faint", "not scored"] as const);
  return (
    <span className={`mark ${tone}`} role="img" aria-label={label} title={label}>
      <Icon name={name} />
    </span>
  );
}

const TONES: Record<string, string> = {
  running: "accent live",
  starting: "accent live",
  stopping: "warn live",
  queued: "",
  completed: "good",
  failed: "bad",
  stopped: "warn",
  better: "good",
  worse: "bad",
  learnable: "good",
  broken: "bad",
};

export function State({ state }: { state: string }) {
  return (
    <span className={`badge ${Object.hasOwn(TONES, state) ? TONES[state] : ""}`}>
      <span className="dot" />
      {state}
    </span>
  );
}

export function Ending({ ending }: { ending: string }) {
  return ending === "answered" ? <span className="soft">answered</span> : <span className="badge warn">{words(ending)}</span>;
}

export function Problem({ error }: { error: Error }) {
  return (
    <p className="notice bad" role="alert">
      {error.message}
    </p>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <strong>{title}</strong>
      {children}
    </div>
  );
}

export function Loading() {
  const [isShown, show] = useState(false);
  useEffect(() => {
    const timer = window.setTimeout(() => show(true), 150);
    return () => window.clearTimeout(timer);
  }, []);
  return isShown ? <div className="loading" role="progressbar" aria-label="loading" /> : null;
}

export function Fold({ title, children, isOpen }: { title: ReactNode; children: ReactNode; isOpen?: boolean }) {
  const [wasOpened, open] = useState(Boolean(isOpen));
  return (
    <details className="fold" open={isOpen} onToggle={(event) => event.currentTarget.open && open(true)}>
      <summary>{title}</summary>
      {wasOpened ? children : null}
    </details>
  );
}

export function Sparkline({ values, width = 100, height = 22 }: { values: readonly number[] | undefined; width?: number; height?: number }) {
  if (!values || values.length < 2) return <span className="faint">–</span>;
  const low = Math.min(...values);
  const high = Math.max(...values);
  const span = high - low || 1;
  const points = values.map((value, place) => {
    const x = 1 + (place * (width - 5)) / (values.length - 1);
    const y = height - 3 - ((value - low) / span) * (height - 6);
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  });
  const [x, y] = points[points.length - 1]!.split(",");
  return (
    <svg width={width} height={height} role="img" aria-label={`reward from ${values[0]} to ${values[values.length - 1]}`}>
      <polyline points={points.join(" ")} fill="none" stroke="var(--accent)" strokeWidth="1.5" strokeLinejoin="round" />
      <circle cx={x} cy={y} r="2" fill="var(--accent)" />
    </svg>
  );
}

export function toast(text: string): void {
  const shown = document.createElement("div");
  shown.className = "toast";
  shown.setAttribute("role", "status");
  shown.textContent = text;
  document.body.append(shown);
  window.setTimeout(() => shown.remove(), 1800);
}

export async function copy(text: string, name: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    toast(`Copied ${name}`);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    toast(`Copied ${name}`);
  }
}

export function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement | null;
  return Boolean(target?.closest("input:not([type=range], [type=checkbox]), textarea, select")) || event.metaKey || event.ctrlKey || event.altKey;
}

export function useKeys(keys: Record<string, (event: KeyboardEvent) => void>): void {
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      if (isTyping(event) || document.querySelector("dialog[open]")) return;
      if (Object.hasOwn(keys, event.key)) keys[event.key]!(event);
    };
    window.addEventListener("keydown", listen);
    return () => window.removeEventListener("keydown", listen);
  });
}

export function Choice({ label, value, options, onChange }: { label: string; value: string; options: readonly string[]; onChange: (value: string) => void }) {
  return (
    <select className="field" aria-label={label} value={value} onChange={(event) => onChange(event.target.value)}>
      <option value="">{label}: any</option>
      {options.map((each) => (
        <option key={each} value={each}>{each.replaceAll("_", " ")}</option>
      ))}
    </select>
  );
}

export function useNarrow(): boolean {
  const [isNarrow, set] = useState(() => window.matchMedia("(max-width: 720px)").matches);
  useEffect(() => {
    const query = window.matchMedia("(max-width: 720px)");
    const listen = () => set(query.matches);
    query.addEventListener("change", listen);
    return () => query.removeEventListener("change", listen);
  }, []);
  return isNarrow;
}
