import { Route, Router, Switch } from "wouter";
import { useHashLocation } from "wouter/use-hash-location";
import "./app.css";
import { Frame } from "./frame.tsx";
import { JoinPage } from "./leagues/join-page.tsx";
import { LeaguePage } from "./leagues/league-page.tsx";
import { LeagueSettingsPage } from "./leagues/league-settings-page.tsx";
import { LeaguesPage } from "./leagues/leagues-page.tsx";
import { NewLeaguePage } from "./leagues/new-league-page.tsx";
import { RankNews } from "./leagues/rank-news.tsx";
import { Goals } from "./live/goals.tsx";
import { LiveProvider } from "./live/live.tsx";
import { MatchPage } from "./match/match-page.tsx";
import { MatchesPage } from "./matches/matches-page.tsx";
import { MePage } from "./me/me-page.tsx";
import { NotificationsPage } from "./notifications/notifications-page.tsx";
import { EditProfilePage } from "./people/edit-profile-page.tsx";
import { FollowsPage } from "./people/follows-page.tsx";
import { PrivacyPage } from "./people/privacy-page.tsx";
import { ProfilePage } from "./people/profile-page.tsx";
import { QuestionsPage } from "./questions/questions-page.tsx";
import { Ended } from "./session/ended.tsx";
import { Login } from "./session/login.tsx";
import { MeContext, matchday, useSession } from "./session/session.ts";
import { isUndoLink, UndoMove } from "./session/undo-move.tsx";
import { TablePage } from "./table/table-page.tsx";
import { Mark } from "./ui/mark.tsx";
import { NotFoundPage } from "./ui/not-found-page.tsx";
import { useResource } from "./ui/resource.ts";
import { Loading, Problem } from "./ui/states.tsx";
import { Toasts } from "./ui/toasts.tsx";

export function App() {
  const session = useSession();
  if (isUndoLink()) return <UndoMove />;
  if (session === "in") return <Inside />;
  return session === "out" ? <Login /> : <Ended ending={session} />;
}

function Inside() {
  const resource = useResource((signal) => matchday.get("/api/auth/me", { signal }), []);
  if (resource.data === undefined) {
    return (
      <main className="splash">
        <Mark size={56} />
        <h1 className="unseen">Matchday</h1>
        {resource.error === undefined ? <Loading /> : <Problem error={resource.error} retry={resource.reload} />}
      </main>
    );
  }
  return (
    <MeContext value={{ me: resource.data.data, reload: resource.reload }}>
      <LiveProvider>
        {/* The path is in the fragment, so that any static file server can host the app. */}
        <Router hook={useHashLocation}>
          <Frame>
            <Switch>
              <Route path="/">
                <MatchesPage />
              </Route>
              <Route path="/match/:id">{({ id }) => <MatchPage key={id} id={Number(id)} />}</Route>
              <Route path="/questions">
                <QuestionsPage />
              </Route>
              <Route path="/leagues">
                <LeaguesPage />
              </Route>
              <Route path="/leagues/new">
                <NewLeaguePage />
              </Route>
              <Route path="/leagues/:id">{({ id }) => <LeaguePage key={id} id={Number(id)} />}</Route>
              <Route path="/leagues/:id/round/:round">
                {({ id, round }) => <LeaguePage key={id} id={Number(id)} round={Number(round)} />}
              </Route>
              <Route path="/leagues/:id/settings">{({ id }) => <LeagueSettingsPage key={id} id={Number(id)} />}</Route>
              <Route path="/join/:code">{({ code }) => <JoinPage key={code} code={code} />}</Route>
              <Route path="/table">
                <TablePage scope={{}} />
              </Route>
              <Route path="/table/tournament/:id">
                {({ id }) => <TablePage scope={{ tournament_id: Number(id) }} />}
              </Route>
              <Route path="/table/tournament/:id/round/:round">
                {({ id, round }) => <TablePage scope={{ tournament_id: Number(id), round: Number(round) }} />}
              </Route>
              <Route path="/table/room/:id">
                {({ id }) => <TablePage scope={{ room_id: decodeURIComponent(id) }} />}
              </Route>
              <Route path="/users/:user">
                {({ user }) => <ProfilePage key={user} user={decodeURIComponent(user)} />}
              </Route>
              <Route path="/me">
                <MePage />
              </Route>
              <Route path="/me/profile">
                <EditProfilePage />
              </Route>
              <Route path="/me/privacy">
                <PrivacyPage />
              </Route>
              <Route path="/me/notifications">
                <NotificationsPage />
              </Route>
              <Route path="/me/following">
                <FollowsPage key="following" which="following" />
              </Route>
              <Route path="/me/followers">
                <FollowsPage key="followers" which="followers" />
              </Route>
              <Route>
                <NotFoundPage />
              </Route>
            </Switch>
          </Frame>
          <Goals />
          <RankNews />
          <Toasts />
        </Router>
      </LiveProvider>
    </MeContext>
  );
}
