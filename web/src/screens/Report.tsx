// A whole run on one page: what a report opens with, and what is printed.
import { isExport, leftOut, type Schemas, useCall } from "../api";
import { visible } from "../format";
import { type Live, useLive } from "../live";
import { link } from "../router";
import { CheckpointsTab, SettingsTab } from "./Details";
import { OverviewTab } from "./Overview";
import { FlippedCases } from "./Pairs";

export function ReportTab({ about, live }: { about: Schemas["ShownRun"]; live: Live }) {
  const details = useCall<Schemas["RunDetails"]>("run.details", { run: about.run });
  const missing = leftOut();
  return (
    <div className="stack report">
      <div className="row on-screen">
        {isExport() ? null : <a className="button" href={`/report/${encodeURIComponent(about.run)}`} download={`${about.run}.html`}>Save as one file</a>}
        <button className="button" onClick={() => window.print()}>Print</button>
      </div>
      {missing.length ? <p className="notice">This file leaves out {missing.join("; ")}. <code>sparring view</code> shows them.</p> : null}
      <OverviewTab about={about} live={live} />
      {about.kind === "prove" ? <FlippedCases run={about.run} /> : null}
      <Facts run={about.run} kind={about.kind} live={live} />
      {details.data?.training ? <Training run={details.data.training} /> : null}
    </div>
  );
}

function Facts({ run, kind, live }: { run: string; kind: string; live: Live }) {
  return (
    <>
      {kind === "train" ? <section className="stack"><h2 className="part">Checkpoints</h2><CheckpointsTab run={run} live={live} /></section> : null}
      <section className="stack"><h2 className="part">Settings</h2><SettingsTab run={run} /></section>
    </>
  );
}

/** The training that a run proves or ships. */
function Training({ run }: { run: string }) {
  const shown = useCall<Schemas["ShownRun"]>("run.show", { run });
  const live = useLive(shown.data ? shown.data.run : null, true);
  if (!shown.data) return null;
  return (
    <section className="stack" aria-label="The training">
      <h2 className="part">What was trained: <a className="text" href={link(["run", run])}>{visible(run)}</a></h2>
      <OverviewTab about={shown.data} live={live} />
      <Facts run={run} kind={shown.data.kind} live={live} />
    </section>
  );
}
