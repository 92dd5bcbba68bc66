import com.scalar.db.api.DistributedTransaction;
import com.scalar.db.api.DistributedTransactionAdmin;
import com.scalar.db.api.DistributedTransactionManager;
import com.scalar.db.api.Get;
import com.scalar.db.api.Result;
import com.scalar.db.api.TableMetadata;
import com.scalar.db.api.Upsert;
import com.scalar.db.exception.transaction.TransactionException;
import com.scalar.db.io.DataType;
import com.scalar.db.io.Key;
import com.scalar.db.service.TransactionFactory;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * ScalarDB's consensus commit, as published. It performs each line of the standard input, and answers with one line:
 *
 * <ul>
 *   <li>update FIRST N: one transaction that reads and updates N items; the microseconds that it took.
 *   <li>read FIRST N: one that only reads them; likewise.
 *   <li>rivals ITEM THREADS WORK_MS SECONDS: threads that update one item, with work between read and commit; the
 *       commits, the tries, the most and the least commits of a thread.
 * </ul>
 *
 * <p>Arguments: the endpoint, then settings as name=value.
 */
public final class Peer {
  private static final String NAMESPACE = "bank";
  private static final String TABLE = "accounts";

  public static void main(String[] arguments) throws Exception {
    Properties settings = new Properties();
    settings.setProperty("scalar.db.storage", "dynamo");
    settings.setProperty("scalar.db.contact_points", "us-east-1");
    settings.setProperty("scalar.db.username", "test");
    settings.setProperty("scalar.db.password", System.getProperty("peer.key"));
    settings.setProperty("scalar.db.dynamo.endpoint_override", arguments[0]);
    for (int at = 1; at < arguments.length; at++) {
      String[] parts = arguments[at].split("=", 2);
      settings.setProperty(parts[0], parts[1]);
    }
    TransactionFactory factory = TransactionFactory.create(settings);
    try (DistributedTransactionAdmin admin = factory.getTransactionAdmin()) {
      prepare(admin);
    }
    try (DistributedTransactionManager manager = factory.getTransactionManager();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
      System.out.println("ready");
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        String[] words = line.trim().split(" ");
        int first = Integer.parseInt(words[1]);
        int count = Integer.parseInt(words[2]);
        if (words[0].equals("rivals")) {
          System.out.println(rivals(manager, first, count, Long.parseLong(words[3]), Long.parseLong(words[4])));
          continue;
        }
        long began = System.nanoTime();
        if (words[0].equals("update")) {
          update(manager, first, count, 0);
        } else {
          read(manager, first, count);
        }
        System.out.println((System.nanoTime() - began) / 1_000);
      }
    }
  }

  private static void prepare(DistributedTransactionAdmin admin) throws Exception {
    // Both call services that no emulator here has.
    Map<String, String> options = Map.of("no-scaling", "true", "no-backup", "true");
    admin.createCoordinatorTables(true, options);
    admin.createNamespace(NAMESPACE, true, options);
    TableMetadata metadata =
        TableMetadata.newBuilder()
            .addColumn("id", DataType.TEXT)
            .addColumn("balance", DataType.INT)
            .addPartitionKey("id")
            .build();
    admin.createTable(NAMESPACE, TABLE, metadata, true, options);
  }

  private static void update(DistributedTransactionManager manager, int first, int count, long workMs)
      throws Exception {
    DistributedTransaction transaction = manager.start();
    try {
      int[] balances = new int[count];
      for (int each = 0; each < count; each++) {
        balances[each] = balance(transaction, first + each);
      }
      if (workMs > 0) {
        Thread.sleep(workMs);
      }
      for (int each = 0; each < count; each++) {
        transaction.upsert(
            Upsert.newBuilder()
                .namespace(NAMESPACE)
                .table(TABLE)
                .partitionKey(key(first + each))
                .intValue("balance", balances[each] + 1)
                .build());
      }
      transaction.commit();
    } catch (TransactionException refused) {
      transaction.rollback();
      throw refused;
    }
  }

  private static void read(DistributedTransactionManager manager, int first, int count) throws Exception {
    DistributedTransaction transaction = manager.start();
    for (int each = 0; each < count; each++) {
      balance(transaction, first + each);
    }
    transaction.commit();
  }

  private static int balance(DistributedTransaction transaction, int number) throws Exception {
    Get get = Get.newBuilder().namespace(NAMESPACE).table(TABLE).partitionKey(key(number)).build();
    return transaction.get(get).map((Result found) -> found.getInt("balance")).orElse(0);
  }

  private static String rivals(
      DistributedTransactionManager manager, int item, int threads, long workMs, long seconds) throws Exception {
    AtomicBoolean over = new AtomicBoolean();
    AtomicLong tries = new AtomicLong();
    AtomicLongArray commits = new AtomicLongArray(threads);
    Thread[] rivals = new Thread[threads];
    for (int number = 0; number < threads; number++) {
      int mine = number;
      rivals[number] =
          new Thread(
              () -> {
                for (int refused = 0; !over.get(); ) {
                  tries.incrementAndGet();
                  try {
                    update(manager, item, 1, workMs);
                    commits.incrementAndGet(mine);
                    refused = 0;
                  } catch (TransactionException conflict) {
                    backOff(++refused);
                  } catch (Exception broken) {
                    throw new IllegalStateException(broken);
                  }
                }
              });
      rivals[number].start();
    }
    Thread.sleep(seconds * 1_000);
    over.set(true);
    long sum = 0;
    long most = 0;
    long least = Long.MAX_VALUE;
    for (int number = 0; number < threads; number++) {
      rivals[number].join();
      sum += commits.get(number);
      most = Math.max(most, commits.get(number));
      least = Math.min(least, commits.get(number));
    }
    return sum + " " + tries.get() + " " + most + " " + least;
  }

  /** Its pages leave the wait before another try to its users: exponential, with full jitter, as AWS advises. */
  private static void backOff(int refused) {
    try {
      Thread.sleep(ThreadLocalRandom.current().nextLong(Math.min(1_000, 20L << Math.min(refused, 6))));
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  private static Key key(int number) {
    return Key.ofText("id", "account-" + number);
  }
}
