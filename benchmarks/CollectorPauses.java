import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Random;

/**
 * Lives as the heap of a broker does, so that its collector can be watched: sessions that stay and change, messages that are held until they
 * are acknowledged, and garbage. `python -m benchmarks.collector_pauses` starts it with `-Xlog` and reads the log.
 *
 * Arguments: seconds, sessions, messages a second (0: as many as the threads make), milliseconds that a message is held, bytes of a message,
 * bytes of garbage a message, threads. Prints messages a second, processor seconds of its threads, and the size of the heap.
 */
public class CollectorPauses {
    static final int STATE_BYTES = 400, PIECE_BYTES = 256;

    /** What a broker keeps of a client: never garbage, and pointing to what is new. */
    static final class Session {
        final String client;
        final HashMap<String, Integer> subscriptions = new HashMap<>();
        byte[] state = new byte[STATE_BYTES];
        Message last;

        Session(int number) {
            client = "client-" + number;
            subscriptions.put("p/" + number, 1);
        }
    }

    /** A message on its way; packets and records are arrays of their own, as they are in network buffers and producers. */
    static final class Message {
        final String topic;
        final byte[] packet;
        final byte[] record;
        final long madeNs;

        Message(Session session, int bytes, long nowNs) {
            topic = session.client.concat("/out");
            packet = new byte[bytes];
            record = new byte[bytes];
            madeNs = nowNs;
        }
    }

    public static void main(String[] given) throws InterruptedException {
        long seconds = Long.parseLong(given[0]), perSecond = Long.parseLong(given[2]), heldNs = Long.parseLong(given[3]) * 1_000_000L;
        int sessions = Integer.parseInt(given[1]), bytes = Integer.parseInt(given[4]), garbage = Integer.parseInt(given[5]);
        int threads = Integer.parseInt(given[6]);
        Session[] all = new Session[sessions];
        for (int number = 0; number < sessions; number++) all[number] = new Session(number);
        long[] messages = new long[threads], busyNs = new long[threads];
        long begunNs = System.nanoTime(), endNs = begunNs + seconds * 1_000_000_000L;
        ThreadMXBean clock = ManagementFactory.getThreadMXBean();
        List<Thread> running = new ArrayList<>();
        for (int number = 0; number < threads; number++) {
            int me = number;
            Thread thread = new Thread(() -> {
                messages[me] = serve(all, me, threads, perSecond, heldNs, bytes, garbage, begunNs, endNs);
                busyNs[me] = clock.getCurrentThreadCpuTime();
            });
            thread.start();
            running.add(thread);
        }
        long made = 0, busy = 0;
        for (int number = 0; number < threads; number++) {
            running.get(number).join();
            made += messages[number];
            busy += busyNs[number];
        }
        System.out.printf("messages_per_s=%d busy_s=%.3f heap_bytes=%d%n", made / seconds, busy / 1e9, Runtime.getRuntime().maxMemory());
    }

    /** One thread: every millisecond what is due, or without a rate as much as it can. */
    static long serve(Session[] all, int me, int threads, long perSecond, long heldNs, int bytes, int garbage, long begunNs, long endNs) {
        Random random = new Random(me);
        ArrayDeque<Message> held = new ArrayDeque<>();
        byte[][] dropped = new byte[16][]; // what nobody could see, the compiler would not allocate
        long made = 0, now;
        while ((now = System.nanoTime()) < endNs) {
            long due = perSecond == 0 ? made + 100 : (long) ((now - begunNs) / 1e9 * perSecond / threads);
            for (; made < due; made++) {
                Session session = all[me + threads * random.nextInt(all.length / threads)];
                Message message = new Message(session, bytes, now);
                for (int left = garbage; left > 0; left -= PIECE_BYTES) dropped[left / PIECE_BYTES % dropped.length] = new byte[Math.min(left, PIECE_BYTES)];
                session.last = message;
                session.state = new byte[STATE_BYTES];
                held.add(message);
            }
            while (!held.isEmpty() && now - held.peek().madeNs > heldNs) held.poll();
            if (perSecond != 0) java.util.concurrent.locks.LockSupport.parkNanos(1_000_000);
        }
        return made;
    }
}
