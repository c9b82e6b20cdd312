import axe from "axe-core";
import type { Page } from "playwright-core";

/** What is wrong on a page for those who see, hear or use it differently; each with its place. */
export async function faultsOf(page: Page): Promise<string[]> {
  // Through the debugger, because the page's policy allows no foreign script.
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => {
    const { axe } = window as unknown as { axe: typeof import("axe-core") };
    return axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
  });
  return violations.flatMap(({ id, help, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id}: ${help}\n  ${target.join(" ")}\n  ${failureSummary}`),
  );
}
