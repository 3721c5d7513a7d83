// Before and after: each case of a proof, or of two runs, with both transcripts side by side.
import { useMemo } from "react";
import { type Schemas, useCall } from "../api";
import { commonMessages, differenceOf } from "../differences";
import { fixed, oneLine, signed, visible } from "../format";
import { Conversation } from "../parts/Conversation";
import { Empty, Loading, Mark, Problem, useKeys } from "../parts/ui";
import { Verdicts } from "../parts/Verdicts";
import { recordPassed, type RolloutRecord } from "../records";
import { link, setParams, usePlace } from "../router";

const CHANGES = ["fixed", "improved", "worsened", "broken", "both wrong", "both right"] as const;
const PARTLY = ["improved", "worsened"]; // only where a case is played several times
const TONE: Record<string, string> = { fixed: "good", improved: "good", worsened: "bad", broken: "bad", "both wrong": "warn", "both right": "" };

export function PairsTab({ run, kind }: { run: string; kind: string }) {
  const place = usePlace();
  const other = place.params.get("other") ?? undefined;
  const only = place.params.get("change") ?? "";
  const pairs = useCall<Schemas["Pairs"]>("rollout.pairs", { run, other });
  const shown = useMemo(() => (pairs.data?.pairs ?? []).filter((pair) => !only || pair.change === only), [pairs.data, only]);
  const wanted = place.params.get("case");
  const at = Math.max(0, shown.findIndex((pair) => pair.case === wanted));
  const pair = shown[at];
  const to = (next: number) => shown[next] && setParams(place, { case: shown[next].case });
  useKeys({ j: () => to(at + 1), k: () => to(at - 1) });
  if (pairs.error && !other && kind !== "prove") return <Empty title="One run has no other side.">Choose two runs in the list, and compare them case by case.</Empty>;
  if (pairs.error) return <Problem error={pairs.error} />;
  if (!pairs.data) return <Loading />;
  return (
    <>
      {other ? <p className="soft" style={{ marginBottom: 10 }}>Before is <a className="text" href={link(["run", run])}>{run}</a>; after is <a className="text" href={link(["run", other])}>{visible(other)}</a>. Cases that both played, largest changes first.</p> : null}
      <div className="filters" style={{ marginBottom: 12 }} role="group" aria-label="Which cases">
        <button className="button" aria-pressed={!only} onClick={() => setParams(place, { change: undefined, case: undefined })}>All <span className="count">{pairs.data.pairs.length}</span></button>
        {CHANGES.filter((change) => pairs.data!.counts[change] || change === only || !PARTLY.includes(change)).map((change) => (
          <button key={change} className="button" aria-pressed={only === change} onClick={() => setParams(place, { change, case: undefined })}>
            {change} <span className="count">{pairs.data!.counts[change] ?? 0}</span>
          </button>
        ))}
        {pairs.data.is_partial ? <span className="badge warn">only the first 20,000 rollouts of each side</span> : null}
      </div>
      {!pair ? <Empty title={pairs.data.pairs.length ? "No case here." : "No case was played by both."} /> : (
        <div className="pairs">
          <div className="card pair-list" role="listbox" aria-label="Cases" tabIndex={0}>
            {shown.slice(0, 2000).map((each, number) => (
              <button key={each.case} className="pair-item" role="option" aria-selected={number === at} aria-current={number === at} onClick={() => to(number)}>
                <div className="row"><span className={`badge ${TONE[each.change]}`}>{each.change}</span><span className="grow" /><span className="num soft">{fixed(each.before)} → {fixed(each.after)}</span></div>
                <div className="cut"><bdi>{oneLine(each.question || each.case)}</bdi></div>
                <div className="cut soft"><bdi>{oneLine(each.reason)}</bdi></div>
              </button>
            ))}
          </div>
          <Both pair={pair} runs={[pairs.data.before_run, pairs.data.after_run]} />
        </div>
      )}
    </>
  );
}

const SHOWN = 12;

/** The cases of a proof that changed most, one below the other. */
export function FlippedCases({ run }: { run: string }) {
  const pairs = useCall<Schemas["Pairs"]>("rollout.pairs", { run });
  if (!pairs.data) return null;
  const { counts, before_run, after_run } = pairs.data;
  const changed = pairs.data.pairs.filter((pair) => pair.before !== pair.after);
  const total = ["fixed", "improved", "worsened", "broken"].reduce((sum, change) => sum + (counts[change] ?? 0), 0);
  const shown = changed.slice(0, SHOWN);
  return (
    <section className="stack" aria-label="Cases that flipped">
      <h2 className="part">Cases that flipped: {total}{shown.length < total ? `, of which ${shown.length} are shown` : ""}</h2>
      {shown.map((pair) => (
        <section className="stack flip" key={pair.case} aria-label={pair.case}>
          <p><span className={`badge ${TONE[pair.change]}`}>{pair.change}</span> <span className="num soft">{fixed(pair.before)} → {fixed(pair.after)}</span> <bdi className="foreign"><b>{oneLine(pair.question || pair.case)}</b></bdi></p>
          <Both pair={pair} runs={[before_run, after_run]} />
        </section>
      ))}
    </section>
  );
}

function Both({ pair, runs }: { pair: Schemas["Pair"]; runs: [string, string] }) {
  const ids = [pair.before_example, pair.after_example] as const;
  const before = useCall<Schemas["ShownRollout"]>("rollout.show", { run: runs[0], rollout: ids[0] });
  const after = useCall<Schemas["ShownRollout"]>("rollout.show", { run: runs[1], rollout: ids[1] });
  const records = [before.data, after.data].map((each) => each?.record as unknown as RolloutRecord | undefined);
  const common = records[0] && records[1] ? commonMessages([records[0], records[1]]) : 0;
  if (before.error ?? after.error) return <Problem error={(before.error ?? after.error)!} />;
  const counts = [pair.before_rollouts, pair.after_rollouts] as const;
  const change = pair.after - pair.before;
  return (
    <div className="stack">
    {Math.max(...counts) > 1 ? (
      <p className="soft">
        Mean reward <b className="num">{fixed(pair.before)} → {fixed(pair.after)}</b>{change ? <span className={`num ${change > 0 ? "good" : "bad"}`}> {signed(change)}</span> : null}, of {counts[0]} rollouts before and {counts[1]} after. Shown is the rollout of each side that shows the change best.
      </p>
    ) : null}
    <div className="two">
      {records.map((record, place) => (
        <article className="card" key={place}>
          <header>
            <h2>{place ? "After" : "Before"}</h2>
            {record ? <><Mark passed={recordPassed(record)} /><a className="mono cut grow faint" href={link(["run", runs[place]!, "rollout", ids[place]!])}>{visible(ids[place]!)}</a>
              <span className="num">reward <b>{fixed(record.reward)}</b></span>
              {counts[place]! > 1 ? <a className="button quiet" href={link(["run", runs[place]!, "group", ids[place]!])}>all {counts[place]}</a> : null}</> : null}
          </header>
          {record ? <>
            <Verdicts judgements={record.judgements} />
            <div style={{ borderTop: "1px solid var(--line)" }}><Conversation record={record} common={common} differs={place ? differenceOf(record, records[0], common) : undefined} other={place ? records[0] : undefined} /></div>
          </> : null}
        </article>
      ))}
    </div>
    </div>
  );
}
