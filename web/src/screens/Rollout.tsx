// One rollout: conversation or tokens, with verdicts beside it.
import { useEffect, useMemo, useRef, useState } from "react";
import { call, isExport, type Schemas, useCall } from "../api";
import { oneLine, visible } from "../format";
import { Conversation } from "../parts/Conversation";
import { Crumbs } from "../parts/Crumbs";
import { PromptText, Tokens } from "../parts/Tokens";
import { copy, Fold, Icon, Loading, Mark, PLAYED_AFTER, Problem, useKeys } from "../parts/ui";
import { Facts, Reward, Verdicts } from "../parts/Verdicts";
import { asCase, asDemonstration, questionOf, recordPassed, type RolloutRecord } from "../records";
import { go, link, setParams, usePlace } from "../router";

const VIEWS = ["conversation", "tokens", "json"] as const;

export function RolloutScreen({ run, rollout }: { run: string; rollout: string }) {
  const place = usePlace();
  const log = place.params.get("log") ?? undefined;
  const view = place.params.get("view") ?? "conversation";
  const asked = useCall<Schemas["ShownRollout"]>("rollout.show", { run, rollout, log });
  const before = useRef<Schemas["ShownRollout"]>(undefined);
  if (asked.data) before.current = asked.data;
  const shown = { ...asked, data: asked.data ?? before.current }; // the last one, until the next is there
  const [neighbours, setNeighbours] = useState<{ before?: string; after?: string }>({});
  const position = shown.data?.position;
  useEffect(() => {
    if (position === undefined || isExport()) return;
    const start = Math.max(0, position - 1);
    call<Schemas["RolloutPage"]>("rollout.list", { run, log, start, count: 3 }).then((page) => {
      const at = (wanted: number) => page.rollouts.find((line) => line.position === wanted)?.id;
      const [before, after] = [at(position - 1), at(position + 1)];
      setNeighbours({ ...(before ? { before } : {}), ...(after ? { after } : {}) });
    }, () => undefined);
  }, [run, log, position]);
  const to = (id: string | undefined) => id && go(link(["run", run, "rollout", id], { log, view: view === "conversation" ? undefined : view }));
  const show = (name: string) => setParams(place, { view: name === "conversation" ? undefined : name });
  const group = link(["run", run, "group", rollout], { log });
  const tab = log === "validation" ? "validation" : "rollouts";
  useKeys({
    "[": () => to(neighbours.before),
    "]": () => to(neighbours.after),
    g: () => go(group),
    u: () => go(link(["run", run, tab])),
    ",": () => document.getElementById("earlier")?.click(),
    ".": () => document.getElementById("later")?.click(),
    v: () => show(VIEWS[(VIEWS.indexOf(view as "json") + 1) % VIEWS.length]!),
  });
  if (shown.error) return <Problem error={shown.error} />;
  if (!shown.data) return <Loading />;
  const record = shown.data.record as unknown as RolloutRecord;
  return (
    <>
      <Crumbs items={[["Runs", []], [run, ["run", run]], [log ?? "rollouts", ["run", run, tab]], [record.id, null]]} />
      <div className="title">
        <h1 className="question"><Mark passed={recordPassed(record)} /> <bdi>{oneLine(questionOf(record) || record.id)}</bdi></h1>
        <span className="faint mono cut" title="id">{visible(record.id)}</span>
        {record.key ? <span className="badge" title={PLAYED_AFTER}>after step {record.key.step}</span> : null}
        <span className="grow" />
        <a className="button primary" href={group} title="g">Compare with its group</a>
        <button className="icon-button" disabled={!neighbours.before} onClick={() => to(neighbours.before)} aria-label="Previous rollout" title="Previous rollout ([)"><Icon name="left" /></button>
        <button className="icon-button" disabled={!neighbours.after} onClick={() => to(neighbours.after)} aria-label="Next rollout" title="Next rollout (])"><Icon name="right" /></button>
      </div>
      <div className="split">
        <div className="stack">
          <div className="tabs" role="tablist" aria-label="View" style={{ marginBottom: 0 }}>
            {VIEWS.map((name) => (
              <button key={name} role="tab" aria-selected={view === name} onClick={() => show(name)}>{name === "json" ? "JSON" : name[0]!.toUpperCase() + name.slice(1)}</button>
            ))}
          </div>
          {view === "tokens" ? <Tokens run={run} rollout={rollout} log={log} /> : null}
          {view === "json" ? <RawJson record={record} /> : null}
          {view === "conversation" ? (
            <div className="card">
              <Conversation
                record={record}
                prompt={record.rows?.length ? <div className="fold-row"><Fold title="Prompt with instructions and tools, as the model saw it"><PromptText run={run} rollout={rollout} log={log} /></Fold></div> : null}
              />
            </div>
          ) : null}
        </div>
        <aside className="side" aria-label="Verdicts and facts">
          <div className="first"><Reward record={record} /></div>
          <section className="card first"><header><h2>Verdicts</h2></header><Verdicts judgements={record.judgements} /></section>
          <section className="card"><header><h2>Facts</h2></header><div className="body"><Facts record={record} /></div></section>
          {record.rows && record.rows.length > 1 ? <AgentTree record={record} /> : null}
          {isExport() ? null : <OverSteps run={run} record={record} log={log} onChoose={to} />}
          <div className="filters">
            <button className="button" onClick={() => copy(asCase(record), "the case")}>Copy as case</button>
            <button className="button" disabled={!recordPassed(record)} title={recordPassed(record) ? undefined : "It did not pass: nobody should learn from it"} onClick={() => copy(asDemonstration(record), "the demonstration")}>Copy as demonstration</button>
          </div>
        </aside>
      </div>
    </>
  );
}

function RawJson({ record }: { record: RolloutRecord }) {
  const text = useMemo(() => JSON.stringify(record, null, 2), [record]);
  return (
    <div className="card">
      <header><h2>Record</h2><span className="faint">{text.length.toLocaleString("en")} characters</span><span className="grow" /><button className="button" onClick={() => copy(text, "the record")}>Copy</button></header>
      <pre className="log foreign" tabIndex={0}>{visible(text.slice(0, 300_000))}{text.length > 300_000 ? "\n…" : ""}</pre>
    </div>
  );
}

function AgentTree({ record }: { record: RolloutRecord }) {
  const rows = record.rows!;
  const depth = (place: number): number => {
    let [steps, at] = [0, rows[place]?.parent];
    while (at !== undefined && at !== null && steps < 20) {
      if (rows[place]?.start === "nested") steps += 1;
      at = rows[at]?.parent;
    }
    return steps;
  };
  return (
    <section className="card">
      <header><h2>Agents and branches</h2></header>
      <ol className="body" style={{ margin: 0, listStyle: "none" }}>
        {rows.slice(0, 60).map((row, place) => (
          <li key={place} style={{ paddingLeft: depth(place) * 16 }}>{visible(row.agent)} <span className="faint">{row.start}</span></li>
        ))}
      </ol>
    </section>
  );
}

/** The same case at other steps: a slider, and one column a step with one square a rollout. */
function OverSteps({ run, record, log, onChoose }: { run: string; record: RolloutRecord; log: string | undefined; onChoose: (id: string) => void }) {
  const [lines, setLines] = useState<Schemas["RolloutLine"][]>([]);
  const [searched, setSearched] = useState<number | null>(0);
  const name = record.case.id;
  useEffect(() => {
    let isOver = false;
    const read = async () => {
      let start: number | null = 0;
      let found: Schemas["RolloutLine"][] = [];
      for (let round = 0; round < 20 && start !== null && !isOver; round += 1) {
        const page: Schemas["RolloutPage"] = await call("rollout.list", { run, log, case: name, start, count: 200 });
        found = [...found, ...page.rollouts];
        start = page.next ?? null;
        if (isOver) return;
        setLines(found);
        setSearched(start);
      }
    };
    read().catch(() => undefined);
    return () => {
      isOver = true;
    };
  }, [run, log, name]);
  const steps = useMemo(() => {
    const columns = new Map<number, Schemas["RolloutLine"][]>();
    for (const line of lines) columns.set(line.step, [...(columns.get(line.step) ?? []), line]);
    return [...columns].sort(([a], [b]) => a - b);
  }, [lines]);
  if (steps.length < 2) return null;
  const at = Math.max(0, steps.findIndex(([step]) => step === record.key?.step));
  const choose = (place: number) => {
    const lines = steps[place]?.[1];
    const same = lines?.find((line) => line.id.endsWith(`.${record.key?.index ?? 0}`)) ?? lines?.[0];
    if (same) onChoose(same.id);
  };
  return (
    <section className="card">
      <header><h2>This case over steps</h2><span className="faint">{searched === null ? "" : "first part"}</span></header>
      <div className="row" style={{ padding: "10px 14px 0" }}>
        <button id="earlier" className="icon-button" disabled={at === 0} onClick={() => choose(at - 1)} aria-label="Earlier step" title="Earlier step (,)"><Icon name="left" /></button>
        <input type="range" className="grow" min={0} max={steps.length - 1} value={at} aria-label="Step" aria-valuetext={`step ${steps[at]?.[0]}`} onChange={(event) => choose(Number(event.target.value))} />
        <button id="later" className="icon-button" disabled={at === steps.length - 1} onClick={() => choose(at + 1)} aria-label="Later step" title="Later step (.)"><Icon name="right" /></button>
      </div>
      <p className="faint num" style={{ padding: "0 14px" }}>step {steps[at]?.[0]}: {steps[at]?.[1].filter((line) => line.passed).length} of {steps[at]?.[1].length} passed</p>
      <div className="body steps" style={{ height: "auto", minHeight: 30 }}>
        {steps.map(([step, each]) => (
          <a key={step} href={link(["run", run, "rollout", each[0]!.id], { log })} title={`step ${step}: ${each.filter((line) => line.passed).length} of ${each.length} passed`}
            aria-label={`step ${step}: ${each.filter((line) => line.passed).length} of ${each.length} passed`}>
            {each.slice(0, 16).map((line) => (
              <i key={line.id} style={{ background: line.passed ? "var(--good)" : line.passed === false ? "var(--bad)" : "var(--line-strong)", outline: line.id === record.id ? "2px solid var(--accent)" : "none" }} />
            ))}
          </a>
        ))}
      </div>
    </section>
  );
}
