// One run: its head, its tabs, and what each tab shows.
import { useEffect, useRef } from "react";
import { call, canAsk, isExport, type Schemas, useCall } from "../api";
import { duration, fixed, percent, visible, words } from "../format";
import { type Live, useLive } from "../live";
import { ask, settingsIn } from "../parts/Ask";
import { Crumbs } from "../parts/Crumbs";
import { Loading, Problem, State, toast, useKeys } from "../parts/ui";
import { go, link } from "../router";
import { useShared } from "../shared";
import { CheckpointsTab, EventsTab, LogsTab, SettingsTab } from "./Details";
import { OverviewTab } from "./Overview";
import { PairsTab } from "./Pairs";
import { ReportTab } from "./Report";
import { RolloutsTab } from "./Rollouts";

export function RunScreen({ run, tab }: { run: string; tab: string }) {
  const { session } = useShared();
  const shown = useCall<Schemas["ShownRun"]>("run.show", { run }, 10);
  const live = useLive(shown.data ? shown.data.run : null, !isGoing(shown.data?.state));
  const { reload } = shown;
  useEffect(() => {
    if (live.hasEnded) reload();
  }, [live.hasEnded, reload]);
  useKeys({ u: () => go("#/") });
  if (shown.error && !shown.data) return <Problem error={shown.error} />;
  if (!shown.data) return <Loading />;
  const about = shown.data;
  const canRead = session.role !== "viewer";
  const tabs = tabsOf(about.run, about.kind, canRead, session.role === "owner");
  return (
    <>
      <Crumbs items={[["Runs", []], [about.run, null]]} />
      <Head about={about} live={live} onChange={shown.reload} />
      <nav className="tabs" aria-label="Parts of the run">
        {tabs.map(([name, label]) => <Tab key={name} href={link(name === "overview" ? ["run", run] : ["run", run, name])} isCurrent={name === tab} label={label} />)}
      </nav>
      {tab === "overview" ? <OverviewTab about={about} live={live} /> : null}
      {tab === "rollouts" || tab === "validation" ? <RolloutsTab run={about.run} log={tab} key={tab} isLive={!live.hasEnded} /> : null}
      {tab === "pairs" ? <PairsTab run={about.run} kind={about.kind} /> : null}
      {tab === "events" ? <EventsTab live={live} /> : null}
      {tab === "settings" ? <SettingsTab run={about.run} /> : null}
      {tab === "checkpoints" ? <CheckpointsTab run={about.run} live={live} /> : null}
      {tab === "logs" ? <LogsTab about={about} isLive={!live.hasEnded} /> : null}
      {tab === "report" ? <ReportTab about={about} live={live} /> : null}
    </>
  );
}

function isGoing(state: string | undefined): boolean {
  return ["queued", "starting", "running", "stopping"].includes(state ?? "");
}

function Tab({ href, label, isCurrent }: { href: string; label: string; isCurrent: boolean }) {
  const place = useRef<HTMLAnchorElement>(null);
  useEffect(() => {
    const [tab, bar] = [place.current, place.current?.parentElement];
    if (isCurrent && tab && bar) bar.scrollLeft = tab.offsetLeft - bar.offsetLeft - (bar.clientWidth - tab.clientWidth) / 2;
  }, [isCurrent]);
  return <a ref={place} href={href} aria-current={isCurrent ? "page" : undefined}>{label}</a>;
}

function tabsOf(run: string, kind: string, canRead: boolean, isOwner: boolean): [string, string][] {
  const tabs: [string, string][] = [["overview", "Overview"]];
  if (kind === "prove" && canRead && canAsk("rollout.pairs", run)) tabs.push(["pairs", "Before and after"]);
  if (canRead && canAsk("rollout.list", run)) tabs.push(["rollouts", "Rollouts"]);
  if (kind === "train" && canRead && canAsk("rollout.list", run)) tabs.push(["validation", "Validation rollouts"]);
  if (kind === "train") tabs.push(["checkpoints", "Checkpoints"]);
  tabs.push(["events", "Events"], ["settings", "Settings"]);
  if (canRead && !isExport()) tabs.push(["logs", "Logs"]);
  if (isOwner) tabs.push(["report", "Report"]);
  return tabs;
}

function Head({ about, live, onChange }: { about: Schemas["ShownRun"]; live: Live; onChange: () => void }) {
  const state = live.now?.state ?? about.state;
  const step = live.now?.step ?? about.step;
  const steps = live.now?.steps ?? about.steps;
  const left = live.now?.seconds_left ?? null;
  const message = live.now?.message || about.message;
  return (
    <>
      <div className="title">
        <h1 className="name">{about.run}</h1>
        <State state={state} />
        <span className="badge">{about.kind}</span>
        {live.now?.doing && !live.hasEnded ? <span className="soft cut">{visible(live.now.doing)}</span> : null}
        <span className="grow" />
        {about.proof && canAsk("run.show", about.proof) ? <a className="button" href={link(["run", about.proof])}>Its proof</a> : null}
        <Actions about={about} state={state} onChange={onChange} />
      </div>
      {message ? (
        <p className={`notice ${state === "failed" ? "bad" : about.warning ? "warn" : ""}`} style={{ marginBottom: 12 }}>
          {visible(message)}
        </p>
      ) : null}
      <dl className="stats" style={{ margin: "0 0 14px" }}>
        <Stat name={about.kind === "train" ? "Step" : "Rollouts"} value={step ?? "–"} more={steps ? `of ${steps}` : ""} />
        {about.kind === "train" || about.reward !== null ? <Stat name="Reward" value={fixed(live.latest("reward") ?? about.reward)} /> : null}
        {about.kind === "train" ? <Stat name="Validation" value={fixed(live.latest("validation/reward") ?? about.validation_reward)} /> : null}
        {Object.entries(about.pass_rates ?? {}).slice(0, 4).map(([name, rate]) => (
          <Stat key={name} name={`${words(visible(name))}`} value={percent(live.latest(`pass_rate/${name}`) ?? rate)} />
        ))}
        <Stat name="Environment" value={visible(about.environment.split("/").pop() ?? "")} />
        <Stat name="Model" value={visible((about.model || "the agent's").split("/").pop() ?? "")} />
        <Stat name="Time" value={duration((live.now?.minutes ?? about.minutes) * 60)} more={left ? `${duration(left)} left` : ""} />
      </dl>
    </>
  );
}

export function Stat({ name, value, more = "" }: { name: string; value: string | number; more?: string }) {
  return (
    <div className="stat">
      <dt>{name}</dt>
      <dd>
        {value} <small>{more}</small>
      </dd>
    </div>
  );
}

function Actions({ about, state, onChange }: { about: Schemas["ShownRun"]; state: string; onChange: () => void }) {
  const { session } = useShared();
  if (isExport() || session.role === "viewer") return null;
  const { run } = about;
  const isTraining = about.kind === "train";
  const change = (operation: string, done: string) => async () => {
    await call(operation, { run });
    toast(`${done} requested`);
    onChange();
  };
  const stop = () => ask({ title: `Stop ${run}?`, text: `${isTraining ? "It writes a checkpoint" : "It keeps what it has finished"}, and then its processes end. It can be resumed.`, confirm: "Stop it", isDanger: true, perform: change("run.stop", "Stop") });
  const resume = () => ask({ title: `Resume ${run}?`, text: isTraining ? "It continues from its last checkpoint." : "It continues with what is left.", confirm: "Resume it", perform: change("run.resume", "Resume") });
  const clone = () => ask({
    title: `Clone ${run}`, text: "Starts another run like this one.", confirm: "Start the clone",
    field: { label: "Settings to change, one a line; none: the same again", placeholder: "learning_rate=1e-4\nmax_steps=50", isLong: true },
    perform: async (text) => {
      const started = await call<Schemas["Started"]>("run.clone", { run, settings: settingsIn(text) });
      toast(`Started ${started.run}`);
      go(link(["run", started.run]));
    },
  });
  return (
    <>
      {isGoing(state) ? <button className="button danger" onClick={stop}>Stop</button> : null}
      {["stopped", "failed"].includes(state) ? <button className="button" onClick={resume}>Resume</button> : null}
      {session.role === "owner" && ["train", "eval"].includes(about.kind) ? <button className="button" onClick={clone}>Clone</button> : null}
    </>
  );
}
