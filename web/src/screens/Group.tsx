// The rollouts of one case in one step, side by side from where they first differ.
import { useMemo } from "react";
import { type Schemas, useCall } from "../api";
import { commonMessages, differenceOf } from "../differences";
import { fixed, oneLine, signed, visible } from "../format";
import { Conversation } from "../parts/Conversation";
import { Crumbs } from "../parts/Crumbs";
import { Loading, Mark, PLAYED_AFTER, Problem, useKeys } from "../parts/ui";
import { Verdicts } from "../parts/Verdicts";
import { questionOf, recordPassed, type RolloutRecord } from "../records";
import { go, link, usePlace } from "../router";

export function GroupScreen({ run, rollout }: { run: string; rollout: string }) {
  const log = usePlace().params.get("log") ?? undefined;
  const group = useCall<Schemas["Group"]>("rollout.group", { run, rollout, log });
  useKeys({ u: () => go(link(["run", run, "rollout", rollout], { log })) });
  const records = useMemo(() => {
    const found = (group.data?.rollouts ?? []).map((each) => each.record as unknown as RolloutRecord);
    found.sort((a, b) => (b.reward ?? -1) - (a.reward ?? -1));
    const own = found.findIndex((each) => each.id === rollout);
    if (own > 1) found.splice(1, 0, ...found.splice(own, 1)); // beside the best one
    return found;
  }, [group.data, rollout]);
  const common = useMemo(() => commonMessages(records), [records]);
  if (group.error) return <Problem error={group.error} />;
  if (!group.data) return <Loading />;
  const best = Math.max(...records.map((record) => record.reward ?? -Infinity));
  const isLive = new Set(records.map((record) => record.reward)).size > 1;
  const isTraining = records.some((record) => record.advantage !== undefined && record.advantage !== null);
  const first = records[0];
  const passed = records.filter(recordPassed).length;
  return (
    <>
      <Crumbs items={[["Runs", []], [run, ["run", run]], ["rollouts", ["run", run, log === "validation" ? "validation" : "rollouts"]], [rollout, ["run", run, "rollout", rollout]], ["group", null]]} />
      <div className="title">
        <h1 className="question"><bdi>{first ? oneLine(questionOf(first)) : ""}</bdi></h1>
        {isTraining ? <span className="badge" title={PLAYED_AFTER}>after step {group.data.step}</span> : null}
        <span className="soft">{passed} of {records.length} rollouts passed</span>
        {isTraining ? <span className={`badge ${isLive ? "good" : "warn"}`}>{isLive ? "rewards differ: it carries a gradient" : "equal rewards: no gradient"}</span> : null}
      </div>
      <div className="siblings" tabIndex={0} role="region" aria-label="Rollouts side by side">
        {records.map((record) => (
          <article key={record.id} className={`card sibling ${record.reward === best && isLive ? "best" : ""} ${record.id === rollout ? "this" : ""}`}>
            <header>
              <div className="row wrap">
                <Mark passed={recordPassed(record)} />
                <a title={visible(record.id)} href={link(["run", run, "rollout", record.id], { log })}>Rollout <b>{visible(record.id.split(".").pop() ?? "")}</b></a>
                {record.id === rollout ? <span className="badge accent">this</span> : null}
                <span className="grow" />
                <span className="num">reward <b>{fixed(record.reward)}</b></span>
                {record.advantage === undefined ? null : <span className={`num ${record.advantage > 0 ? "good" : record.advantage < 0 ? "bad" : "soft"}`}>advantage <b>{signed(record.advantage)}</b></span>}
              </div>
            </header>
            <Verdicts judgements={record.judgements} />
            <div style={{ borderTop: "1px solid var(--line)" }}>
              <Conversation record={record} common={common} differs={differenceOf(record, first, common)} other={first} />
            </div>
          </article>
        ))}
      </div>
      <p className="faint" style={{ marginTop: 8 }}>
        {records.length < 2 ? "This case was played once: there is no other rollout to compare with." : <>The best one is on the left, {isLive ? "and the one you came from beside it" : "and all rewards are equal"}. Coloured text is where a rollout first differs from the best one.</>}
      </p>
    </>
  );
}
