import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.crypto.Cipher;
import javax.crypto.spec.SecretKeySpec;
import reseat.stream.Accelerator;
import reseat.stream.Reseat;

/**
 * Encrypts numbered blocks on an accelerator until its standard input ends, and compares each with what
 * Java's own cipher makes of it: java -cp CLASSES Encrypt.java [SPANS]
 *
 * <p>Prints the stream's name among the programs of {@code reseat ps}, then every tenth of a second the time
 * and how many blocks came back. SPANS is a file that gets when it packed and unpacked, for a picture. Times
 * are of System.nanoTime.
 */
public final class Encrypt {
    private static final int BLOCK = 16;
    private static final int BATCH = 1 << 12; // blocks that are packed or unpacked at a time
    private static final byte[] KEY = "sixteen byte key".getBytes();
    private static final AtomicBoolean over = new AtomicBoolean();
    private static PrintStream spans;

    private static void span(String stage, long begin, long first, int blocks) {
        if (spans != null)
            spans.printf("%s %d %d %d %d%n", stage, begin, System.nanoTime(), first, blocks);
    }

    private static void number(ByteBuffer to, long first, int blocks) {
        for (long block = first; block < first + blocks; block++)
            to.putLong(block).putLong(~block);
    }

    /** Packs and sends until it is over; then one block that is numbered -1. */
    private static void send(Accelerator aes) {
        for (long sent = 0; !over.get();) {
            ByteBuffer slots = aes.slots();
            int blocks = Math.min(slots.remaining() / BLOCK, BATCH);
            long begin = System.nanoTime();
            number(slots, sent, blocks);
            span("pack", begin, sent, blocks);
            aes.send(blocks);
            sent += blocks;
        }
        number(aes.slots(), -1, 1);
        aes.send(1);
    }

    public static void main(String[] args) throws Exception {
        Cipher cipher = Cipher.getInstance("AES/ECB/NoPadding");
        cipher.init(Cipher.ENCRYPT_MODE, new SecretKeySpec(KEY, "AES"));
        ByteBuffer plain = ByteBuffer.allocate(BATCH * BLOCK).order(java.nio.ByteOrder.LITTLE_ENDIAN);
        ByteBuffer last = ByteBuffer.allocate(BLOCK).order(plain.order());
        number(last, -1, 1);
        ByteBuffer end = ByteBuffer.wrap(cipher.doFinal(last.array()));
        if (args.length > 0)
            spans = new PrintStream(args[0]);
        try (Accelerator aes = Reseat.open("aes", KEY)) {
            System.out.println("program " + aes.program());
            Thread sender = new Thread(() -> send(aes));
            Thread waiter = new Thread(() -> {
                try {
                    while (System.in.read() >= 0)
                        continue;
                } catch (java.io.IOException e) {
                    System.err.println(e);
                }
                over.set(true);
            });
            waiter.setDaemon(true);
            waiter.start();
            sender.start();
            long done = 0;
            for (long told = 0;;) {
                ByteBuffer answers = aes.answers();
                int blocks = Math.min(answers.remaining() / BLOCK, BATCH);
                long begin = System.nanoTime();
                answers.limit(answers.position() + blocks * BLOCK);
                number(plain.clear(), done, blocks);
                ByteBuffer expected = ByteBuffer.wrap(cipher.doFinal(plain.array(), 0, blocks * BLOCK));
                int wrong = answers.mismatch(expected);
                boolean isLast = over.get() && blocks == wrong / BLOCK + 1 && wrong >= 0
                        && answers.slice(answers.position() + (blocks - 1) * BLOCK, BLOCK).equals(end);
                if (wrong >= 0 && !isLast)
                    throw new IllegalStateException("block " + (done + wrong / BLOCK) + " is wrong");
                span("unpack", begin, done, blocks);
                aes.release(blocks);
                done += isLast ? blocks - 1 : blocks;
                if (isLast || begin - told > 100_000_000) {
                    told = begin;
                    System.out.println("blocks " + begin + " " + done);
                }
                if (isLast)
                    break;
            }
            sender.join();
            System.out.println("all " + done + " blocks are as Java's own cipher makes them");
        }
    }
}
