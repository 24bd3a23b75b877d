/* Two-phase commit with N resource managers, one option per action; the law is asserted where a manager ends.
 * Messages are flags that stay set. Every option is one step (d_step), as in the specification beside it. */
#ifndef N
#define N 7
#endif

#define WORKING   0
#define PREPARED  1
#define COMMITTED 2
#define ABORTED   3

byte manager[N];
byte coordinator;
bit heard[N];
bit vote_sent[N];
bit commit_sent;
bit abort_sent;

#if N == 3
#define ALL_HEARD (heard[0] && heard[1] && heard[2])
#elif N == 7
#define ALL_HEARD (heard[0] && heard[1] && heard[2] && heard[3] && heard[4] && heard[5] && heard[6])
#elif N == 8
#define ALL_HEARD (heard[0] && heard[1] && heard[2] && heard[3] && heard[4] && heard[5] && heard[6] && heard[7])
#endif

#define MANAGER(i) \
  :: d_step { coordinator == WORKING && vote_sent[i] -> heard[i] = 1 } \
  :: d_step { manager[i] == WORKING -> manager[i] = PREPARED; vote_sent[i] = 1 } \
  :: d_step { manager[i] == WORKING -> manager[i] = ABORTED; assert(!commit_sent) } \
  :: d_step { commit_sent -> manager[i] = COMMITTED; assert(!abort_sent) } \
  :: d_step { abort_sent -> manager[i] = ABORTED; assert(!commit_sent) }

active proctype system() {
end:
  do
  :: d_step { coordinator == WORKING && ALL_HEARD -> coordinator = COMMITTED; commit_sent = 1 }
  :: d_step { coordinator == WORKING -> coordinator = ABORTED; abort_sent = 1 }
  MANAGER(0) MANAGER(1) MANAGER(2)
#if N > 3
  MANAGER(3) MANAGER(4) MANAGER(5) MANAGER(6)
#endif
#if N > 7
  MANAGER(7)
#endif
  od
}
