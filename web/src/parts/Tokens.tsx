// Tokens as the model sampled them: colour is probability, or the gap, or the weights' version.
import { useState } from "react";
import { type Schemas, useCall } from "../api";
import { number, visible } from "../format";
import { useShared } from "../shared";
import { Empty, Loading, Problem } from "./ui";

type Span = Schemas["TokenSpan"];
type Colour = "probability" | "surprise" | "gap" | "version";
const MOST = 4_000;

export function Tokens({ run, rollout, log }: { run: string; rollout: string; log: string | undefined }) {
  const { theme } = useShared();
  const [colour, setColour] = useState<Colour>("probability");
  const [note, setNote] = useState<{ x: number; y: number; text: string }>();
  const [most, setMost] = useState(MOST);
  const [hasPrompt, showPrompt] = useState(false);
  const tokens = useCall<Schemas["ShownTokens"]>("rollout.tokens", { run, rollout, log });
  if (tokens.error) return <Problem error={tokens.error} />;
  if (!tokens.data) return <Loading />;
  if (!tokens.data.rows.length) return <Empty title="This rollout has no tokens.">An endpoint played it, which returned text only.</Empty>;
  const hasGaps = tokens.data.rows.some((row) => row.spans.some((span) => span.gaps.length));
  const hasVersions = new Set(tokens.data.rows.flatMap((row) => row.spans.flatMap((span) => span.versions.map(([version]) => version)))).size > 1;
  const choices: Colour[] = ["probability", "surprise", ...(hasGaps ? (["gap"] as const) : []), ...(hasVersions ? (["version"] as const) : [])];
  const isDark = theme === "dark";
  return (
    <div className="card">
      <header className="wrap">
        <div className="filters" role="group" aria-label="Colour">
          {choices.map((each) => (
            <button key={each} className="button" aria-pressed={each === colour} onClick={() => setColour(each)}>{each}</button>
          ))}
        </div>
        <Scale colour={colour} isDark={isDark} />
        <span className="grow" />
        <span className="faint"><span className="token prompt">prompt</span> · <span style={{ background: shade(0.3, isDark), borderRadius: 3, padding: "0 3px", color: "var(--text)" }}>sampled</span> · <span className="token observed">observed</span></span>
        <button className="button" aria-pressed={hasPrompt} onClick={() => showPrompt(!hasPrompt)}>Prompt</button>
      </header>
      {tokens.data.tokenizer ? null : <p className="notice warn" style={{ margin: 10 }}>No tokenizer was found beside the run, so ids are shown instead of text.</p>}
      {tokens.data.rows.map((row, place) => (
        <section key={place}>
          {tokens.data!.rows.length > 1 ? (
            <p className="faint" style={{ padding: "8px 14px 0" }}>
              Row {place + 1}: <b>{visible(row.agent)}</b> · {row.start}{row.parent === null ? "" : ` of row ${(row.parent ?? 0) + 1}`}
            </p>
          ) : null}
          <div
            className="tokens"
            onMouseMove={(event) => {
              const text = (event.target as HTMLElement).dataset.note;
              setNote(text ? { x: event.clientX, y: event.clientY, text } : undefined);
            }}
            onMouseLeave={() => setNote(undefined)}
          >
            {row.spans.map((span, at) => <SpanView key={at} span={span} colour={colour} isDark={isDark} most={most} isFirst={at === 0} hasPrompt={hasPrompt} onShow={() => showPrompt(true)} />)}
          </div>
        </section>
      ))}
      {tokens.data.rows.some((row) => row.spans.some((span) => span.texts.length > most)) ? (
        <p style={{ padding: 12 }}><button className="button" onClick={() => setMost((now) => now * 4)}>Show more tokens</button></p>
      ) : null}
      {note ? <div className="hover-note mono" style={{ left: Math.min(note.x + 12, window.innerWidth - 240), top: note.y + 16 }}>{note.text}</div> : null}
    </div>
  );
}

function SpanView({ span, colour, isDark, most, isFirst, hasPrompt, onShow }: { span: Span; colour: Colour; isDark: boolean; most: number; isFirst: boolean; hasPrompt: boolean; onShow: () => void }) {
  if (span.kind === "prompt" && isFirst && !hasPrompt) {
    return <><button className="button quiet" onClick={onShow}>{span.texts.length} tokens of the prompt</button>{"\n"}</>;
  }
  const versions = span.versions.flatMap(([version, count]) => Array<number>(count).fill(version));
  return (
    <>
      {span.texts.slice(0, most).map((text, place) => {
        const logprob = span.logprobs[place];
        const isSampled = span.kind === "sampled" && logprob !== undefined;
        const note = isSampled ? noteOf(text, logprob, span.gaps[place], versions[place]) : undefined;
        const style = isSampled ? { background: backgroundOf(colour, logprob, span.gaps[place], versions[place], isDark) } : undefined;
        return <span key={place} className={`token ${span.kind}`} style={style} data-note={note}>{visible(text)}</span>;
      })}
    </>
  );
}

function noteOf(text: string, logprob: number, gap: number | undefined, version: number | undefined): string {
  const parts = [JSON.stringify(visible(text)), `probability ${number(Math.exp(logprob))}`, `surprise ${number(-logprob)} nats`];
  if (gap !== undefined) parts.push(`gap ${number(gap)}`);
  if (version !== undefined) parts.push(`weights of step ${version}`);
  return parts.join(" · ");
}

function backgroundOf(colour: Colour, logprob: number, gap: number | undefined, version: number | undefined, isDark: boolean): string {
  if (colour === "gap") return shade(Math.min(1, Math.abs(gap ?? 0) * 100), isDark);
  if (colour === "version") return `hsl(${((version ?? 0) * 67) % 360} 60% ${isDark ? 26 : 86}%)`;
  if (colour === "surprise") return shade(Math.min(1, -logprob / 4), isDark);
  return shade(1 - Math.exp(logprob), isDark);
}

/** From clear (likely) to strong orange (unlikely); the text stays readable in both. */
function shade(amount: number, isDark: boolean): string {
  return isDark ? `rgb(226 120 40 / ${(0.08 + 0.5 * amount).toFixed(3)})` : `rgb(245 140 50 / ${(0.08 + 0.55 * amount).toFixed(3)})`;
}

function Scale({ colour, isDark }: { colour: Colour; isDark: boolean }) {
  if (colour === "version") return null;
  const [low, high] = colour === "probability" ? ["1", "0"] : colour === "surprise" ? ["0", "4 nats"] : ["0", "0.01"];
  return (
    <span className="row faint">
      {low}<span className="scale" style={{ background: `linear-gradient(90deg, ${shade(0, isDark)}, ${shade(1, isDark)})` }} />{high}
    </span>
  );
}

export function PromptText({ run, rollout, log }: { run: string; rollout: string; log: string | undefined }) {
  const tokens = useCall<Schemas["ShownTokens"]>("rollout.tokens", { run, rollout, log });
  if (tokens.error) return <Problem error={tokens.error} />;
  const first = tokens.data?.rows[0]?.spans[0];
  return <bdi className="foreign mono" style={{ display: "block", marginTop: 8 }}>{first ? visible(first.texts.join("")) : "…"}</bdi>;
}
