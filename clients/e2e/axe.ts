import axe from "axe-core";
import type { Page } from "playwright-core";

/** Returns the accessibility violations of a page, each with its element. */
export async function violationsOf(page: Page): Promise<string[]> {
  // Injected through the debugger, because the content security policy blocks other scripts.
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => {
    const { axe } = window as unknown as { axe: typeof import("axe-core") };
    return axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
  });
  return violations.flatMap(({ id, help, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id}: ${help}\n  ${target.join(" ")}\n  ${failureSummary}`),
  );
}
